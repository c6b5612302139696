// AdamW over all parameters in one launch (arXiv 1711.05101; the formula is in adamw.hpp).
//
// The table of tensors travels as a kernel argument of up to 32 KiB, so that nothing is copied or
// allocated for a launch and a graph holds it. Chunks of 8192 elements are numbered through all
// tensors; a persistent grid takes every G-th of them, and a block finds the tensor of its next
// chunk by going on in the table from its last. Learning rate, decay, step number, norm and step_ok
// are read from device memory, the bias corrections computed once a block in fp64.
// A thread has 4 elements of each array at a time, 16-byte accesses that pass L2 by, with the loads
// of two such groups in flight, or of one; a block of 512 threads reaches 16 KiB of each stream at
// once, which memory serves faster than less. Tensors off 16 bytes, and a tensor's last elements,
// go singly.
// With first moments of e4m3 a thread makes a block of random bits for two elements.
// Multiply-adds are written out, so that an element's bits do not depend on which of both ways the
// compiler fused: where a piece ends decides the way, and an update must not depend on the cut.
// Cost: 30 bytes a bf16 parameter with an fp32 master, 28 an fp32 one;
// 8 fewer with moments in bf16; 14 a bf16 parameter with first moments of e4m3.
// 25 instructions, and about 80 of random bits and rounding with e4m3.

#include <algorithm>
#include <cstdint>

#include "kernels/machine.hpp"
#include "kernels/optimizer/adamw_launch.hpp"
#include "kernels/optimizer/stochastic_rounding.hpp"
#include "kernels/optimizer/streams.cuh"
#include "kernels/pack.cuh"

namespace stowage::kernels::optimizer {
namespace {

using device::load4;
using device::store4;
using execution::Bf16;
using execution::E4m3;

constexpr int kThreads = 512;
constexpr int kBlocksPerMultiprocessor = 2;
constexpr int kVector = 4;  ///< elements of a thread's access
constexpr int kGroup = kThreads * kVector;
constexpr std::int64_t kChunk = 8192;

/// Whether results are rounded stochastically, with first moments of type M.
template <class M>
constexpr bool kRounds = std::is_same_v<M, E4m3>;

/// Elements that a block has at a time. Rounding needs the registers of a second group.
template <class M>
constexpr int kPass = kRounds<M> ? kGroup : 2 * kGroup;
/// Accesses of an array in flight.
template <class M>
constexpr int kGroups = kPass<M> / kGroup;

/// Which random bits a piece's elements have.
struct Random {
  std::uint64_t stream;
  execution::GlobalIndex index;
};
struct NoRandom {};

template <class S, class M, class G>
struct Entry {
  AdamwPointers<S, M, G> tensor;
  std::uint32_t first_chunk;
  bool aligned;  ///< all addresses allow 16-byte accesses
  std::conditional_t<kRounds<M>, Random, NoRandom> random;
};

/// A kernel's arguments may take 32764 bytes.
template <class M>
constexpr int kEntries = kRounds<M> ? 50 : 500;
template <class S, class M, class G>
struct Table {
  AdamwInputs inputs;
  std::uint32_t chunks;
  int count;
  Entry<S, M, G> entries[kEntries<M>];
};
static_assert(sizeof(Table<Bf16, float, float>) <= 32764 &&
              sizeof(Table<Bf16, E4m3, float>) <= 32764);

/// The numbers of make_adamw_step, from device memory. Two threads: one for each power.
__device__ __forceinline__ void make_step(const AdamwInputs& inputs, AdamwStep<float>& step) {
  if (threadIdx.x >= 2) return;
  const bool second = threadIdx.x == 1;
  const double beta = second ? inputs.options.beta2 : inputs.options.beta1;
  const auto power = static_cast<double>(*inputs.step + 1);
  const auto correction = static_cast<float>(1.0 / (1.0 - pow(beta, power)));
  if (second) {
    step.beta2 = static_cast<float>(beta);
    step.correction2 = correction;
    return;
  }
  step.beta1 = static_cast<float>(beta);
  step.correction1 = correction;
  step.lr = inputs.schedule[0];
  step.weight_decay = inputs.schedule[1];
  step.eps = static_cast<float>(inputs.options.eps);
  const double norm = static_cast<double>(*inputs.norm);
  const double factor = inputs.clip > 0 ? fmin(1.0, inputs.clip / (norm + 1e-6)) : 1.0;
  step.clip_factor = static_cast<float>(factor);
}

/// One element: m and v in place, returns the new master.
__device__ __forceinline__ float update(const AdamwStep<float>& step, float gradient, float old,
                                        float& m, float& v) {
  const float g = gradient * step.clip_factor;
  m = fmaf(step.beta1, m, (1.0F - step.beta1) * g);
  v = fmaf(step.beta2, v, (1.0F - step.beta2) * g * g);
  const float adaptive = m * step.correction1 / (sqrtf(v * step.correction2) + step.eps);
  return fmaf(-step.lr, fmaf(step.weight_decay, old, adaptive), old);
}

/// The first moment of e4m3, whose scale is the root of the second.
__device__ __forceinline__ float scaled(float ratio, float v) {
  return ratio * (sqrtf(v) * (1 / kMomentScale));
}

/// Rounds v to what a bf16 holds, and the parameter if it is a bf16. @return the first moment
template <class S>
__device__ __forceinline__ std::uint32_t round_results(const RoundingBits& bits, float& parameter,
                                                       float m, float& v) {
  const auto widened = [](std::uint16_t bf16) {
    return __uint_as_float(static_cast<std::uint32_t>(bf16) << 16);
  };
  v = widened(round_to_bf16(v, bits.v));
  const float root = sqrtf(v);
  if (std::is_same_v<S, Bf16>) parameter = widened(round_to_bf16(parameter, bits.parameter));
  return round_to_e4m3(root > 0 ? m / root * kMomentScale : 0, bits.m);
}

/// The same of four neighbours, from element `at` of the piece on. @return their first moments
template <class S>
__device__ __forceinline__ std::uint32_t round_results(const Random& random, std::uint64_t key,
                                                       std::int64_t at, float4& parameter,
                                                       const float4& m, float4& v) {
  RoundingStream stream(key, random.stream);
  std::uint32_t codes = 0;
  const auto one = [&](int i, float& to_parameter, float of_m, float& to_v) {
    codes |= round_results<S>(stream(random.index(at + i)), to_parameter, of_m, to_v) << 8 * i;
  };
  one(0, parameter.x, m.x, v.x);
  one(1, parameter.y, m.y, v.y);
  one(2, parameter.z, m.z, v.z);
  one(3, parameter.w, m.w, v.w);
  return codes;
}

__device__ __forceinline__ float4 load_moment4(const E4m3* m, const float4& v) {
  const auto codes = __ldcs(reinterpret_cast<const std::uint32_t*>(m));
  const auto one = [&](int i, float of_v) {
    return scaled(from_e4m3(static_cast<std::uint8_t>(codes >> 8 * i)), of_v);
  };
  return {one(0, v.x), one(1, v.y), one(2, v.z), one(3, v.w)};
}
template <class M>
__device__ __forceinline__ float4 load_moment4(const M* m, const float4&) {
  return load4(m);
}

template <class S, class M, class G>
__device__ __forceinline__ void update_pass(const Entry<S, M, G>& entry, std::uint64_t key,
                                            const AdamwStep<float>& step, std::int64_t first) {
  const AdamwPointers<S, M, G>& tensor = entry.tensor;
  const std::int64_t base = first + threadIdx.x * kVector;
  float4 gradient[kGroups<M>], old[kGroups<M>], m[kGroups<M>], v[kGroups<M>];
#pragma unroll
  for (int i = 0; i < kGroups<M>; ++i) {
    const std::int64_t at = base + i * kThreads * kVector;
    gradient[i] = load4(tensor.gradient + at);
    old[i] = tensor.master != nullptr ? load4(tensor.master + at) : load4(tensor.parameter + at);
    v[i] = load4(tensor.v + at);
    m[i] = load_moment4(tensor.m + at, v[i]);
  }
#pragma unroll
  for (int i = 0; i < kGroups<M>; ++i) {
    const std::int64_t at = base + i * kThreads * kVector;
    float4 updated = {update(step, gradient[i].x, old[i].x, m[i].x, v[i].x),
                      update(step, gradient[i].y, old[i].y, m[i].y, v[i].y),
                      update(step, gradient[i].z, old[i].z, m[i].z, v[i].z),
                      update(step, gradient[i].w, old[i].w, m[i].w, v[i].w)};
    if constexpr (kRounds<M>)
      __stcs(reinterpret_cast<std::uint32_t*>(tensor.m + at),
             round_results<S>(entry.random, key, at, updated, m[i], v[i]));
    else
      store4(tensor.m + at, m[i]);
    store4(tensor.v + at, v[i]);
    if (tensor.master != nullptr) store4(tensor.master + at, updated);
    store4(tensor.parameter + at, updated);
  }
}

template <class S, class M, class G>
__device__ __forceinline__ void update_element(const Entry<S, M, G>& entry, std::uint64_t key,
                                               const AdamwStep<float>& step, std::int64_t i) {
  const AdamwPointers<S, M, G>& tensor = entry.tensor;
  float v = device::to_float(tensor.v[i]), m;
  if constexpr (kRounds<M>)
    m = scaled(from_e4m3(tensor.m[i].bits), v);
  else
    m = device::to_float(tensor.m[i]);
  const float old =
      tensor.master != nullptr ? tensor.master[i] : device::to_float(tensor.parameter[i]);
  float updated = update(step, device::to_float(tensor.gradient[i]), old, m, v);
  if constexpr (kRounds<M>) {
    RoundingStream stream(key, entry.random.stream);
    tensor.m[i].bits =
        static_cast<std::uint8_t>(round_results<S>(stream(entry.random.index(i)), updated, m, v));
  } else {
    tensor.m[i] = device::round_to<M>(m);
  }
  tensor.v[i] = device::round_to<SecondMoment<M>>(v);
  if (tensor.master != nullptr) tensor.master[i] = updated;
  tensor.parameter[i] = device::round_to<S>(updated);
}

template <class S, class M, class G>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    adamw(const __grid_constant__ Table<S, M, G> table) {
  __shared__ AdamwStep<float> shared_step;
  if (*table.inputs.step_ok == 0) return;
  make_step(table.inputs, shared_step);
  __syncthreads();
  AdamwStep<float> step = shared_step;
  const std::uint64_t key =
      kRounds<M> ? RoundingStream::key(table.inputs.seed, *table.inputs.step) : 0;
  int at = 0;
  for (std::uint32_t chunk = blockIdx.x; chunk < table.chunks; chunk += gridDim.x) {
    while (at + 1 < table.count && table.entries[at + 1].first_chunk <= chunk) ++at;
    const Entry<S, M, G>& entry = table.entries[at];
    const std::int64_t begin = kChunk * (chunk - entry.first_chunk);
    const std::int64_t end = min(begin + kChunk, entry.tensor.elements);
    step.weight_decay = entry.tensor.decay * shared_step.weight_decay;
    step.lr = entry.tensor.lr * shared_step.lr;
    std::int64_t first = begin;
    if (entry.aligned)
      for (; first + kPass<M> <= end; first += kPass<M>) update_pass(entry, key, step, first);
    for (std::int64_t i = first + threadIdx.x; i < end; i += kThreads)
      update_element(entry, key, step, i);
  }
}

template <class S, class M, class G>
bool is_aligned(const AdamwPointers<S, M, G>& tensor) {
  std::uintptr_t bits = 0;
  for (const void* address :
       {static_cast<const void*>(tensor.master), static_cast<const void*>(tensor.gradient),
        static_cast<const void*>(tensor.m), static_cast<const void*>(tensor.v),
        static_cast<const void*>(tensor.parameter)})
    bits |= reinterpret_cast<std::uintptr_t>(address);
  return bits % 16 == 0;
}

}  // namespace

template <class S, class M, class G>
int launch_adamw(std::span<const Adamw::Piece> pieces,
                 std::span<const AdamwPointers<S, M, G>> tensors, const AdamwInputs& inputs,
                 void* stream) {
  const int most_blocks = machine().multiprocessors * kBlocksPerMultiprocessor;
  if (most_blocks == 0) return cudaErrorNoDevice;
  for (std::size_t begin = 0; begin < tensors.size(); begin += kEntries<M>) {
    Table<S, M, G> table{.inputs = inputs, .chunks = 0, .count = 0, .entries = {}};
    for (std::size_t i = begin; i < std::min(begin + kEntries<M>, tensors.size()); ++i) {
      const AdamwPointers<S, M, G>& tensor = tensors[i];
      Entry<S, M, G>& entry = table.entries[table.count++];
      entry = {tensor, table.chunks, is_aligned(tensor), {}};
      if constexpr (kRounds<M>) entry.random = {pieces[i].stream, pieces[i].index};
      table.chunks += static_cast<std::uint32_t>((tensor.elements + kChunk - 1) / kChunk);
    }
    const unsigned blocks = std::min(table.chunks, static_cast<std::uint32_t>(most_blocks));
    if (blocks == 0) continue;
    adamw<S, M, G><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(table);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

#define STOWAGE_LAUNCH(S, M, G)                            \
  template int launch_adamw(std::span<const Adamw::Piece>, \
                            std::span<const AdamwPointers<S, M, G>>, const AdamwInputs&, void*)
STOWAGE_LAUNCH(float, float, float);
STOWAGE_LAUNCH(float, Bf16, float);
STOWAGE_LAUNCH(float, E4m3, float);
STOWAGE_LAUNCH(Bf16, float, float);
STOWAGE_LAUNCH(Bf16, Bf16, float);
STOWAGE_LAUNCH(Bf16, E4m3, float);
STOWAGE_LAUNCH(float, float, Bf16);
STOWAGE_LAUNCH(float, Bf16, Bf16);
STOWAGE_LAUNCH(float, E4m3, Bf16);
STOWAGE_LAUNCH(Bf16, float, Bf16);
STOWAGE_LAUNCH(Bf16, Bf16, Bf16);
STOWAGE_LAUNCH(Bf16, E4m3, Bf16);

}  // namespace stowage::kernels::optimizer
