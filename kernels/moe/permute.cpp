#include "kernels/moe/permute.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

std::string PermuteIndex::fault() const {
  return rows <= tokens * topk ? "" : "row_weight has more elements than indices";
}

void PermuteIndex::run(Queue& queue, const Operands<View>& views) const {
  kernels::Operands(kName).require(
      queue.stream() == nullptr || (experts <= kMostExperts && tokens * topk <= kMostPairs),
      "device code takes up to 1024 experts and 2^30 pairs");
  kernels::run(queue, *this, views);
}

Cost PermuteIndex::cost() const {
  const std::int64_t pairs = tokens * topk;
  return {0, bytes(2 * pairs + experts + 1, Dtype::int32) +
                 bytes(2 * pairs, execution::accumulation(storage))};
}

// A token without a routed pair is not read.
Cost GatherRows::cost() const {
  return {0, bytes((std::min(tokens, routed) + routed) * width, storage) +
                 bytes(tokens * topk, Dtype::int32)};
}

Cost CombineRows::cost() const {
  return {static_cast<double>(routed * width),
          bytes(routed * width, storage) + passes(accumulate) * bytes(tokens * width, storage) +
              bytes(tokens * topk, Dtype::int32)};
}

STOWAGE_OPERATOR_RUN(GatherRows)
STOWAGE_OPERATOR_RUN(CombineRows)

}  // namespace stowage::kernels
