#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/optimizer/ema.hpp"

namespace stowage::kernels {

/// A piece of Ema in memory; weights of type W, the average of type A.
template <class W, class A>
struct EmaPointers {
  const W* weight = nullptr;
  A* ema = nullptr;
  std::int64_t elements = 0;
};

template <class W, class S>
auto ema_pointers(const Ema& op, const Ema::Operands<Pointers<S>>& o) {
  std::vector<EmaPointers<W, execution::Accumulation<S>>> all;
  for (const std::int64_t elements : op.elements) {
    const auto& [weight, ema] = o.tensors[all.size()];
    all.push_back({static_cast<const W*>(weight), ema, elements});
  }
  return all;
}

/// A piece of ExchangeEma in memory; master may be nullptr.
template <class S>
struct ExchangePointers {
  using A = execution::Accumulation<S>;
  S* parameter = nullptr;
  A* master = nullptr;
  A* ema = nullptr;
  std::int64_t elements = 0;
};

template <class S>
std::vector<ExchangePointers<S>> exchange_pointers(const ExchangeEma& op,
                                                   const ExchangeEma::Operands<Pointers<S>>& o) {
  std::vector<ExchangePointers<S>> all;
  for (const std::int64_t elements : op.elements) {
    const auto& [parameter, master, ema] = o.tensors[all.size()];
    all.push_back({parameter, master, ema, elements});
  }
  return all;
}

}  // namespace stowage::kernels

/// The launches of the kernels on device memory, behind the operators' checks. `stream` is a
/// cudaStream_t, the result a cudaError_t; W and S are float or Bf16.
namespace stowage::kernels::optimizer {

/// What all pieces share.
struct EmaInputs {
  const std::int32_t* step_ok;  ///< in device memory
  float rest;                   ///< 1 - decay
};
template <class W>
int launch_ema(std::span<const EmaPointers<W, float>> pieces, const EmaInputs& inputs,
               void* stream);

template <class S>
int launch_exchange_ema(std::span<const ExchangePointers<S>> pieces, void* stream);

}  // namespace stowage::kernels::optimizer
