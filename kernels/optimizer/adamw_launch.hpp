#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/optimizer/adamw.hpp"

namespace stowage::kernels {

/// What the elements of one step have in common.
template <class A>
struct AdamwStep {
  A lr, weight_decay, clip_factor;
  A beta1, beta2, eps;
  A correction1, correction2;  ///< 1 / (1 - beta^s), computed in fp64
};

/// A piece in memory; master may be nullptr. Moments are of type M.
template <class S, class M>
struct AdamwPointers {
  using A = execution::Accumulation<S>;
  S* parameter = nullptr;
  A* master = nullptr;
  const A* gradient = nullptr;
  M* m = nullptr;
  M* v = nullptr;
  std::int64_t elements = 0;
  A decay = 0, lr = 1;  ///< factors
};

template <class S, class M>
std::vector<AdamwPointers<S, M>> adamw_pointers(const Adamw& op,
                                                const Adamw::Operands<Pointers<S>>& o) {
  std::vector<AdamwPointers<S, M>> all;
  using A = execution::Accumulation<S>;
  for (const auto& [elements, decay, lr] : op.pieces) {
    const auto& [parameter, master, gradient, m, v] = o.tensors[all.size()];
    all.push_back({parameter, master, gradient, static_cast<M*>(m), static_cast<M*>(v), elements,
                   static_cast<A>(decay), static_cast<A>(lr)});
  }
  return all;
}

}  // namespace stowage::kernels

/// The launch of Adamw's kernel on device memory, behind its checks.
namespace stowage::kernels::optimizer {

/// What all tensors share; addresses in device memory.
struct AdamwInputs {
  const float* schedule;
  const std::int64_t* step;
  const float* norm;
  const std::int32_t* step_ok;
  double clip;
  AdamwOptions options;
};

/// `stream` is a cudaStream_t, the result a cudaError_t; S and M are float or Bf16.
template <class S, class M>
int launch_adamw(std::span<const AdamwPointers<S, M>> tensors, const AdamwInputs& inputs,
                 void* stream);

}  // namespace stowage::kernels::optimizer
