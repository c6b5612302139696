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

void localise(Queue& queue, const View& ids, std::int64_t first, std::int64_t count,
              const View& local) {
  const Operands operands("localise");
  operands.require(ids.dtype() == Dtype::int32 && local.dtype() == Dtype::int32 &&
                       ids.buffer().elements() == local.buffer().elements(),
                   "ids and local are not int32 of one size");
  execution::parallel_for(
      queue, ids.buffer().elements(),
      detail::Localise{ids.as<const std::int32_t>(), local.as<std::int32_t>(), first, count});
}

void pair_values(Queue& queue, const View& rows, const View& token_row, const View& pairs) {
  const Operands operands("pair_values");
  const std::int64_t count = pairs.buffer().elements();
  operands.require(rows.dtype() == pairs.dtype(), "rows and pairs differ in their dtype");
  operands.require(token_row.buffer().elements() == count,
                   "token_row and pairs are not of one size");
  execution::with_accumulation_type(rows.dtype(), [&]<class A>() {
    execution::parallel_for(
        queue, count,
        detail::PairValues<A>{rows.as<const A>(), token_row.as<const std::int32_t>(),
                              pairs.as<A>()});
  });
}

void pair_rows(Queue& queue, const View& indices, const View& rows) {
  const Operands operands("pair_rows");
  operands.require(indices.buffer().elements() == rows.buffer().elements(),
                   "indices and rows are not of one size");
  execution::parallel_for(
      queue, rows.buffer().elements(),
      detail::PairRows{indices.as<const std::int32_t>(), rows.as<std::int32_t>()});
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

Cost localise_cost(std::int64_t elements) { return {0, 2 * bytes(elements, Dtype::int32)}; }

Cost pair_values_cost(std::int64_t pairs, Dtype accumulation) {
  return {0, bytes(pairs, Dtype::int32) + 2 * bytes(pairs, accumulation)};
}

Cost expert_offsets_cost(std::int64_t pairs, std::int64_t experts) {
  return {0, bytes(pairs + experts + 1, Dtype::int32)};
}

}  // namespace stowage::kernels
