#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "execution/fp8.hpp"

#include "kernels/optimizer/adamw.hpp"

namespace stowage::kernels {

/// What the elements of one step have in common.
template <class A>
struct AdamwStep {
  A lr, weight_decay, clip_factor;
  A beta1, beta2, eps;
  A correction1, correction2;  ///< 1 / (1 - beta^s), computed in fp64
};

/// The type of second moments beside first ones of type M.
template <class M>
using SecondMoment = std::conditional_t<std::is_same_v<M, execution::E4m3>, execution::Bf16, M>;

/// A piece in memory; master may be nullptr. First moments are of type M, gradients of type G.
template <class S, class M, class G>
struct AdamwPointers {
  using A = execution::Accumulation<S>;
  S* parameter = nullptr;
  A* master = nullptr;
  const G* gradient = nullptr;
  M* m = nullptr;
  SecondMoment<M>* v = nullptr;
  std::int64_t elements = 0;
  A decay = 0, lr = 1;  ///< factors
};

/// The types of first moments and gradients of an operator, as arguments of f.
template <class A>
auto with_adamw_types(const Adamw& op, auto&& f) {
  const auto with = [&](auto m) {
    return op.gradient_type == execution::Dtype::bf16 ? f(m, execution::Bf16()) : f(m, A());
  };
  if (op.m_type == execution::Dtype::e4m3) return with(execution::E4m3());
  return op.m_type == execution::Dtype::bf16 ? with(execution::Bf16()) : with(A());
}

template <class S, class M, class G>
std::vector<AdamwPointers<S, M, G>> adamw_pointers(const Adamw& op,
                                                   const Adamw::Operands<Pointers<S>>& o) {
  std::vector<AdamwPointers<S, M, G>> all;
  using A = execution::Accumulation<S>;
  for (const Adamw::Piece& piece : op.pieces) {
    const auto& [parameter, master, gradient, m, v] = o.tensors[all.size()];
    all.push_back({parameter, master, static_cast<const G*>(gradient), static_cast<M*>(m),
                   static_cast<SecondMoment<M>*>(v), piece.elements, static_cast<A>(piece.decay),
                   static_cast<A>(piece.lr)});
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
  std::uint64_t seed;
};

/// `stream` is a cudaStream_t, the result a cudaError_t. S and G are float or Bf16, M is one of
/// these or E4m3.
template <class S, class M, class G>
int launch_adamw(std::span<const Adamw::Piece> pieces,
                 std::span<const AdamwPointers<S, M, G>> tensors, const AdamwInputs& inputs,
                 void* stream);

}  // namespace stowage::kernels::optimizer
