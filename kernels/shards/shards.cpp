#include "kernels/shards/shards.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/shards/shards_element.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

void Localise::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::parallel_for(queue, elements,
                          detail::Localise{views.ids.as<const std::int32_t>(),
                                           views.local.as<std::int32_t>(), first, count});
}

Cost Localise::cost() const { return {0, 2 * bytes(elements, Dtype::int32)}; }

void PairValues::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::with_accumulation_type(execution::accumulation(storage), [&]<class A>() {
    execution::parallel_for(
        queue, pairs,
        detail::PairValues<A>{views.rows.as<const A>(), views.token_row.as<const std::int32_t>(),
                              views.pairs.as<A>()});
  });
}

Cost PairValues::cost() const {
  return {0, bytes(pairs, Dtype::int32) + 2 * bytes(pairs, execution::accumulation(storage))};
}

void PairRows::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::parallel_for(
      queue, pairs,
      detail::PairRows{views.indices.as<const std::int32_t>(), views.rows.as<std::int32_t>()});
}

template <class S>
void ExpertOffsets::reference(const Operands<Pointers<S>>& o) const {
  std::fill_n(o.offsets, experts + 1, 0);
  for (std::int64_t i = 0; i < pairs; ++i)
    if (o.indices[i] >= 0) ++o.offsets[o.indices[i] + 1];
  for (std::int64_t e = 0; e < experts; ++e) o.offsets[e + 1] += o.offsets[e];
}

Cost ExpertOffsets::cost() const { return {0, bytes(pairs + experts + 1, Dtype::int32)}; }

STOWAGE_OPERATOR_RUN(ExpertOffsets)

}  // namespace stowage::kernels
