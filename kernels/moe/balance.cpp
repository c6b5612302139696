#include "kernels/moe/balance.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

Cost ExpertLoad::cost() const {
  return {static_cast<double>(experts),
          bytes(experts + 1, Dtype::int32) + bytes(experts, execution::accumulation(storage))};
}

Cost ExpertBiasUpdate::cost() const {
  return {4.0 * static_cast<double>(experts), 3 * bytes(experts, execution::accumulation(storage))};
}

STOWAGE_OPERATOR_RUN(ExpertLoad)
STOWAGE_OPERATOR_RUN(ExpertBiasUpdate)

}  // namespace stowage::kernels
