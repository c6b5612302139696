#include "kernels/optimizer/round_sum.hpp"

#include "kernels/cost.hpp"
#include "kernels/optimizer/rounded_sum.hpp"

namespace stowage::kernels {

using execution::Bf16;
using execution::Dtype;

execution::Cost RoundSum::cost() const {
  return {static_cast<double>(elements), bytes(elements, execution::accumulation(storage)) +
                                             (accumulate ? 2 : 1) * bytes(elements, Dtype::bf16)};
}

void RoundSum::run(execution::Queue& queue, const Operands<execution::View>& views) const {
  check(*this, views);
  execution::with_accumulation_type(execution::accumulation(storage), [&]<class A>() {
    using Functor = detail::RoundedSum<A>;
    const auto* x = views.x.template as<const A>();
    auto* sum = views.sum.template as<Bf16>();
    const auto address =
        reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(sum);
    execution::parallel_for(
        queue, detail::pieces(elements, Functor::kElements),
        Functor{
            .x = x,
            .sum = sum,
            .step = views.step.template as<const std::int64_t>(),
            .microbatch = counted ? views.microbatch.template as<const std::int32_t>() : nullptr,
            .number = number,
            .count = elements,
            .seed = seed,
            .stream = stream,
            .index = index,
            .accumulate = accumulate,
            .aligned = address % 16 == 0});
  });
}

}  // namespace stowage::kernels
