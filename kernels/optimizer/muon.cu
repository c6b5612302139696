// The elementwise parts of Muon over all pieces in one launch (formulas in muon.hpp).
//
// The table of pieces travels as a kernel argument, as adamw's. Chunks of 8192 elements are
// numbered through all pieces; a persistent grid takes every G-th of them, and a block finds the
// piece of its next chunk by going on in the table from its last. A thread has four elements of
// each array at a time, 16-byte accesses that pass L2 by; pieces off 16 bytes, and a piece's last
// elements, go singly. Multiply-adds are written out, so that an element's bits do not depend on
// the way. Cost: momentum 14 bytes a bf16 parameter with fp32 momentum, update 12 with an fp32
// master.

#include <algorithm>
#include <cstdint>

#include "kernels/machine.hpp"
#include "kernels/optimizer/muon_launch.hpp"
#include "kernels/optimizer/streams.cuh"
#include "kernels/pack.cuh"

namespace stowage::kernels::optimizer {
namespace {

using device::load4;
using device::round_to;
using device::store4;
using device::to_float;
using execution::Bf16;

constexpr int kThreads = 512;
constexpr int kBlocksPerMultiprocessor = 2;
constexpr int kVector = 4;  ///< elements of a thread's access
constexpr int kPass = kThreads * kVector;
constexpr std::int64_t kChunk = 4 * kPass;

/// The momentum of one element, in place. @return its direction
struct MomentumStep {
  float clip_factor, momentum;
  bool nesterov, good;

  __device__ explicit MomentumStep(const MomentumInputs& inputs)
      : momentum(inputs.momentum), nesterov(inputs.nesterov), good(*inputs.step_ok != 0) {
    const auto norm = static_cast<double>(*inputs.norm);
    clip_factor =
        static_cast<float>(inputs.clip > 0 ? fmin(1.0, inputs.clip / (norm + 1e-6)) : 1.0);
  }
  __device__ __forceinline__ float operator()(float gradient, float& m) const {
    if (!good) return 0;
    const float g = gradient * clip_factor;
    m = fmaf(momentum, m, g);
    return nesterov ? fmaf(momentum, m, g) : m;
  }
};

template <class S, class M>
__device__ __forceinline__ void work4(const MomentumPointers<S, M>& piece, const MomentumStep& step,
                                      std::int64_t i) {
  const float4 gradient = load4(piece.gradient + i);
  float4 m = load4(piece.m + i);
  const float4 direction = {step(gradient.x, m.x), step(gradient.y, m.y), step(gradient.z, m.z),
                            step(gradient.w, m.w)};
  if (step.good) store4(piece.m + i, m);
  store4(piece.direction + i, direction);
}
template <class S, class M>
__device__ __forceinline__ void work1(const MomentumPointers<S, M>& piece, const MomentumStep& step,
                                      std::int64_t i) {
  float m = to_float(piece.m[i]);
  const float direction = step(piece.gradient[i], m);
  if (step.good) piece.m[i] = round_to<M>(m);
  piece.direction[i] = round_to<S>(direction);
}
template <class S, class M>
bool is_aligned(const MomentumPointers<S, M>& piece) {
  return (reinterpret_cast<std::uintptr_t>(piece.gradient) |
          reinterpret_cast<std::uintptr_t>(piece.m) |
          reinterpret_cast<std::uintptr_t>(piece.direction)) %
             16 ==
         0;
}

/// An element behind its step.
struct MuonStep {
  float lr, decay;
  bool good;

  __device__ explicit MuonStep(const MuonInputs& inputs)
      : lr(inputs.schedule[0]), decay(inputs.schedule[1]), good(*inputs.step_ok != 0) {}
  template <class S>
  __device__ __forceinline__ float operator()(const MuonPointers<S>& piece, float update,
                                              float old) const {
    return fmaf(-(piece.lr * lr), fmaf(piece.decay * decay, old, update), old);
  }
};

template <class S>
__device__ __forceinline__ void work4(const MuonPointers<S>& piece, const MuonStep& step,
                                      std::int64_t i) {
  if (!step.good) return;
  const float4 update = load4(piece.update + i);
  const float4 old = piece.master != nullptr ? load4(piece.master + i) : load4(piece.parameter + i);
  const float4 updated = {step(piece, update.x, old.x), step(piece, update.y, old.y),
                          step(piece, update.z, old.z), step(piece, update.w, old.w)};
  if (piece.master != nullptr) store4(piece.master + i, updated);
  store4(piece.parameter + i, updated);
}
template <class S>
__device__ __forceinline__ void work1(const MuonPointers<S>& piece, const MuonStep& step,
                                      std::int64_t i) {
  if (!step.good) return;
  const float old = piece.master != nullptr ? piece.master[i] : to_float(piece.parameter[i]);
  const float updated = step(piece, to_float(piece.update[i]), old);
  if (piece.master != nullptr) piece.master[i] = updated;
  piece.parameter[i] = round_to<S>(updated);
}
template <class S>
bool is_aligned(const MuonPointers<S>& piece) {
  return (reinterpret_cast<std::uintptr_t>(piece.parameter) |
          reinterpret_cast<std::uintptr_t>(piece.master) |
          reinterpret_cast<std::uintptr_t>(piece.update)) %
             16 ==
         0;
}

template <class Piece>
struct Entry {
  Piece piece;
  std::uint32_t first_chunk;
  bool aligned;  ///< all addresses allow 16-byte accesses
};

/// A kernel's arguments may take 32764 bytes.
constexpr int kEntries = 600;
template <class Piece, class Inputs>
struct Table {
  Inputs inputs;
  std::uint32_t chunks;
  int count;
  Entry<Piece> entries[kEntries];
};

template <class Step, class Piece, class Inputs>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    elementwise(const __grid_constant__ Table<Piece, Inputs> table) {
  const Step step(table.inputs);
  int at = 0;
  for (std::uint32_t chunk = blockIdx.x; chunk < table.chunks; chunk += gridDim.x) {
    while (at + 1 < table.count && table.entries[at + 1].first_chunk <= chunk) ++at;
    const Entry<Piece>& entry = table.entries[at];
    const std::int64_t begin = kChunk * (chunk - entry.first_chunk);
    const std::int64_t end = min(begin + kChunk, entry.piece.elements);
    std::int64_t first = begin;
    if (entry.aligned)
      for (; first + kPass <= end; first += kPass)
        work4(entry.piece, step, first + threadIdx.x * kVector);
    for (std::int64_t i = first + threadIdx.x; i < end; i += kThreads) work1(entry.piece, step, i);
  }
}

template <class Step, class Piece, class Inputs>
int launch(std::span<const Piece> pieces, const Inputs& inputs, void* stream) {
  static_assert(sizeof(Table<Piece, Inputs>) <= 32764);
  const int most_blocks = machine().multiprocessors * kBlocksPerMultiprocessor;
  if (most_blocks == 0) return cudaErrorNoDevice;
  for (std::size_t begin = 0; begin < pieces.size(); begin += kEntries) {
    Table<Piece, Inputs> table{.inputs = inputs, .chunks = 0, .count = 0, .entries = {}};
    for (const Piece& piece :
         pieces.subspan(begin, std::min<std::size_t>(kEntries, pieces.size() - begin))) {
      table.entries[table.count++] = {piece, table.chunks, is_aligned(piece)};
      table.chunks += static_cast<std::uint32_t>((piece.elements + kChunk - 1) / kChunk);
    }
    const unsigned blocks = std::min(table.chunks, static_cast<std::uint32_t>(most_blocks));
    if (blocks == 0) continue;
    elementwise<Step, Piece, Inputs>
        <<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(table);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace

template <class S, class M>
int launch_momentum(std::span<const MomentumPointers<S, M>> pieces, const MomentumInputs& inputs,
                    void* stream) {
  return launch<MomentumStep>(pieces, inputs, stream);
}

template <class S>
int launch_muon(std::span<const MuonPointers<S>> pieces, const MuonInputs& inputs, void* stream) {
  return launch<MuonStep>(pieces, inputs, stream);
}

template int launch_momentum(std::span<const MomentumPointers<float, float>>, const MomentumInputs&,
                             void*);
template int launch_momentum(std::span<const MomentumPointers<float, Bf16>>, const MomentumInputs&,
                             void*);
template int launch_momentum(std::span<const MomentumPointers<Bf16, float>>, const MomentumInputs&,
                             void*);
template int launch_momentum(std::span<const MomentumPointers<Bf16, Bf16>>, const MomentumInputs&,
                             void*);
template int launch_muon(std::span<const MuonPointers<float>>, const MuonInputs&, void*);
template int launch_muon(std::span<const MuonPointers<Bf16>>, const MuonInputs&, void*);

}  // namespace stowage::kernels::optimizer
