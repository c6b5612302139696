// The average of weights over all pieces in one launch (formulas in ema.hpp, design in pieces.cuh).
// Multiply-adds are written out, so that an element's bits do not depend on the way. Accesses pass
// L2 by. Cost: 12 bytes a parameter with an fp32 master; 18 of an exchange with a bf16 parameter.

#include "kernels/optimizer/ema_launch.hpp"
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

struct EmaStep {
  float rest;
  bool good;

  __device__ explicit EmaStep(const EmaInputs& inputs)
      : rest(inputs.rest), good(*inputs.step_ok != 0) {}
  __device__ __forceinline__ float operator()(float weight, float ema) const {
    return fmaf(rest, weight - ema, ema);
  }
  template <class W>
  static bool aligned(const EmaPointers<W, float>& piece) {
    return device::all_aligned(piece.weight, piece.ema);
  }
};

template <class W>
__device__ __forceinline__ void work4(const EmaPointers<W, float>& piece, const EmaStep& step,
                                      std::int64_t i) {
  if (!step.good) return;
  const float4 weight = load4(piece.weight + i);
  const float4 ema = load4(piece.ema + i);
  store4(piece.ema + i, {step(weight.x, ema.x), step(weight.y, ema.y), step(weight.z, ema.z),
                         step(weight.w, ema.w)});
}
template <class W>
__device__ __forceinline__ void work1(const EmaPointers<W, float>& piece, const EmaStep& step,
                                      std::int64_t i) {
  if (step.good) piece.ema[i] = step(to_float(piece.weight[i]), piece.ema[i]);
}

struct ExchangeStep {
  struct Inputs {};
  __device__ explicit ExchangeStep(const Inputs&) {}
  template <class S>
  static bool aligned(const ExchangePointers<S>& piece) {
    return device::all_aligned(piece.parameter, piece.master, piece.ema);
  }
};

template <class S>
__device__ __forceinline__ void work4(const ExchangePointers<S>& piece, const ExchangeStep&,
                                      std::int64_t i) {
  const float4 ema = load4(piece.ema + i);
  store4(piece.ema + i,
         piece.master != nullptr ? load4(piece.master + i) : load4(piece.parameter + i));
  if (piece.master != nullptr) store4(piece.master + i, ema);
  store4(piece.parameter + i, ema);
}
template <class S>
__device__ __forceinline__ void work1(const ExchangePointers<S>& piece, const ExchangeStep&,
                                      std::int64_t i) {
  const float ema = piece.ema[i];
  piece.ema[i] = piece.master != nullptr ? piece.master[i] : to_float(piece.parameter[i]);
  if (piece.master != nullptr) piece.master[i] = ema;
  piece.parameter[i] = round_to<S>(ema);
}

}  // namespace

template <class W>
int launch_ema(std::span<const EmaPointers<W, float>> pieces, const EmaInputs& inputs,
               void* stream) {
  return device::launch_pieces<EmaStep>(pieces, inputs, stream);
}

template <class S>
int launch_exchange_ema(std::span<const ExchangePointers<S>> pieces, void* stream) {
  return device::launch_pieces<ExchangeStep>(pieces, ExchangeStep::Inputs{}, stream);
}

template int launch_ema(std::span<const EmaPointers<float, float>>, const EmaInputs&, void*);
template int launch_ema(std::span<const EmaPointers<Bf16, float>>, const EmaInputs&, void*);
template int launch_exchange_ema(std::span<const ExchangePointers<float>>, void*);
template int launch_exchange_ema(std::span<const ExchangePointers<Bf16>>, void*);

}  // namespace stowage::kernels::optimizer
