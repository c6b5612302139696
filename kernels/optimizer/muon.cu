// The elementwise parts of Muon over all pieces in one launch (formulas in muon.hpp, design in
// pieces.cuh). Multiply-adds are written out, so that an element's bits do not depend on the way.
// Accesses pass L2 by. Cost: momentum 14 bytes a bf16 parameter with fp32 momentum, update 12 with
// an fp32 master.

#include <cstdint>

#include "kernels/optimizer/muon_launch.hpp"
#include "kernels/optimizer/pieces.cuh"
#include "kernels/optimizer/streams.cuh"
#include "kernels/pack.cuh"

namespace stowage::kernels::optimizer {
namespace {

using device::load4;
using device::round_to;
using device::store4;
using device::to_float;
using execution::Bf16;

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
  template <class S, class M>
  static bool aligned(const MomentumPointers<S, M>& piece) {
    return device::all_aligned(piece.gradient, piece.m, piece.direction);
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
  template <class S>
  static bool aligned(const MuonPointers<S>& piece) {
    return device::all_aligned(piece.parameter, piece.master, piece.update);
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
}  // namespace

template <class S, class M>
int launch_momentum(std::span<const MomentumPointers<S, M>> pieces, const MomentumInputs& inputs,
                    void* stream) {
  return device::launch_pieces<MomentumStep>(pieces, inputs, stream);
}

template <class S>
int launch_muon(std::span<const MuonPointers<S>> pieces, const MuonInputs& inputs, void* stream) {
  return device::launch_pieces<MuonStep>(pieces, inputs, stream);
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
