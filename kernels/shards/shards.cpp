#include "kernels/shards/shards.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/shards/shards_element.hpp"
#include "kernels/shards/shards_launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

void expert_offsets_ref(std::int64_t pairs, std::int64_t experts, const std::int32_t* indices,
                        std::int32_t* offsets) {
  std::fill_n(offsets, experts + 1, 0);
  for (std::int64_t i = 0; i < pairs; ++i)
    if (indices[i] >= 0) ++offsets[indices[i] + 1];
  for (std::int64_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
}

}  // namespace

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

void expert_offsets(Queue& queue, const View& indices, const View& offsets) {
  const Operands operands("expert_offsets");
  operands.rank(offsets, "offsets", 1);
  const std::int64_t pairs = indices.buffer().elements(), experts = offsets.extent(0) - 1;
  operands.require(indices.dtype() == Dtype::int32 && offsets.dtype() == Dtype::int32,
                   "indices and offsets are not int32");
  operands.require(queue.stream() == nullptr || experts <= shards::kMostExperts,
                   "device code takes up to 1024 experts");
  run(
      queue, "expert_offsets", Dtype::fp32,
      [=, indices = Address(indices), offsets = Address(offsets)]<class S>() {
        expert_offsets_ref(pairs, experts, indices.as<const std::int32_t>(),
                           offsets.as<std::int32_t>());
      },
      [&]<class S>(void* stream) {
        return shards::launch_expert_offsets(pairs, experts, indices.as<const std::int32_t>(),
                                             offsets.as<std::int32_t>(), stream);
      });
}

Cost expert_offsets_cost(std::int64_t pairs, std::int64_t experts) {
  return {0, bytes(pairs + experts + 1, Dtype::int32)};
}

}  // namespace stowage::kernels
