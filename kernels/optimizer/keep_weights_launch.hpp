#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/optimizer/keep_weights.hpp"

namespace stowage::kernels {

/// A piece in memory; weights of type W.
template <class W>
struct KeptPointers {
  const W* weight = nullptr;
  W* kept = nullptr;
  std::int64_t elements = 0;
};

template <class W, class S>
std::vector<KeptPointers<W>> kept_pointers(const KeepWeights& op,
                                           const KeepWeights::Operands<Pointers<S>>& o) {
  std::vector<KeptPointers<W>> all;
  for (const std::int64_t elements : op.elements) {
    const auto& [weight, kept] = o.tensors[all.size()];
    all.push_back({static_cast<const W*>(weight), static_cast<W*>(kept), elements});
  }
  return all;
}

}  // namespace stowage::kernels

/// The launch of the kernel on device memory, behind the operator's checks. `stream` is a
/// cudaStream_t, the result a cudaError_t; W is float or Bf16.
namespace stowage::kernels::optimizer {

template <class W>
int launch_keep_weights(std::span<const KeptPointers<W>> pieces, const std::int32_t* asked,
                        void* stream);

}  // namespace stowage::kernels::optimizer
