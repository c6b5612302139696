#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Auxiliary-loss-free balancing of experts (arXiv 2408.15664): the load of a step is counted, and
/// at its end the selection bias of each expert moves by one fixed step towards the mean load.
///
/// load (E) = rows of each expert, offsets[e + 1] - offsets[e]; added to load when `accumulate`.
struct ExpertLoad {
  static constexpr std::string_view kName = "expert_load";
  std::int64_t experts;
  execution::Dtype storage;
  bool accumulate;

  template <class T>
  struct Operands {
    Of<T, const std::int32_t> offsets;
    SumsOut<T> load;
  };
  void each(auto&& f, auto&... o) const {
    f(in("offsets", execution::Dtype::int32, {experts + 1}), o.offsets...);
    f(sum("load", accumulate, execution::accumulation(storage), {experts}), o.load...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// bias (E) += rate * sign(mean(load) - load), if step_ok is not 0. load (E) holds the counts of
/// the whole step over all ranks.
struct ExpertBiasUpdate {
  static constexpr std::string_view kName = "expert_bias_update";
  std::int64_t experts;
  execution::Dtype storage;
  double rate;

  template <class T>
  struct Operands {
    SumsIn<T> load;
    SumsOut<T> bias;
    Of<T, const std::int32_t> step_ok;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype accum = execution::accumulation(storage);
    f(in("load", accum, {experts}), o.load...);
    f(sum("bias", true, accum, {experts}), o.bias...);
    f(in("step_ok", execution::Dtype::int32, {1}), o.step_ok...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
