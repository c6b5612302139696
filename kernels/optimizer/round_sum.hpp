#pragma once

#include "execution/global_index.hpp"
#include "kernels/operator.hpp"

namespace stowage::kernels {

/// sum = round(sum + x), or round(x) for the first summand: gradients of microbatches, each in the
/// type of sums, added up in bf16. Rounded stochastically (stochastic_rounding.hpp), so that the
/// mean of the sum is the sum, by random bits of the seed, the step, the number of the microbatch
/// and the element's place in the whole tensor.
struct RoundSum {
  static constexpr std::string_view kName = "round_sum";
  std::int64_t elements;
  execution::Dtype storage;
  bool accumulate;  ///< false: this is the first summand
  bool counted;     ///< the number of the microbatch is `microbatch` - 1, else `number`
  std::int64_t number = 0;
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;           ///< execution::stream_of the whole tensor's name
  execution::GlobalIndex index = {};  ///< which of its elements these are

  template <class T>
  struct Operands {
    Of<T, const std::int64_t> step;        ///< good steps so far
    Of<T, const std::int32_t> microbatch;  ///< of the next one
    SumsIn<T> x;
    Of<T, execution::Bf16> sum;
  };
  void each(auto&& f, auto&... o) const {
    f(in("step", execution::Dtype::int64, {1}), o.step...);
    f(in("microbatch", execution::Dtype::int32, {1}).when(counted), o.microbatch...);
    f(in("x", execution::accumulation(storage), {elements}).in_any_shape(), o.x...);
    f(sum("sum", accumulate, execution::Dtype::bf16, {elements}).in_any_shape(), o.sum...);
  }
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

}  // namespace stowage::kernels
