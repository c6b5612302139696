#include "kernels/moe/balance.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/moe/balance_launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

template <class S>
int ExpertLoad::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return moe::launch_expert_load(experts, o.offsets, o.load, accumulate, stream);
}

Cost ExpertLoad::cost() const {
  return {static_cast<double>(experts),
          bytes(experts + 1, Dtype::int32) + bytes(experts, execution::accumulation(storage))};
}

template <class S>
int ExpertBiasUpdate::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return moe::launch_expert_bias_update(experts, o.load, o.bias, rate, o.step_ok, stream);
}

Cost ExpertBiasUpdate::cost() const {
  return {4.0 * static_cast<double>(experts), 3 * bytes(experts, execution::accumulation(storage))};
}

STOWAGE_OPERATOR_RUN(ExpertLoad)
STOWAGE_OPERATOR_RUN(ExpertBiasUpdate)

}  // namespace stowage::kernels
