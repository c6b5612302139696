#include "kernels/moe/balance.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/moe/balance_launch.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

void expert_load(Queue& queue, const View& offsets, const View& load, bool accumulate) {
  const Operands operands("expert_load");
  operands.rank(load, "load", 1);
  const Dtype dtype = operands.storage(load, "load");
  const std::int64_t experts = load.extent(0);
  operands.check(load, "load", execution::accumulation(dtype), {experts});
  operands.check(offsets, "offsets", Dtype::int32, {experts + 1});
  run(
      queue, "expert_load", dtype,
      [=, offsets = Address(offsets), load = Address(load)]<class S>() {
        expert_load_ref(experts, offsets.as<const std::int32_t>(), load.as<Accumulation<S>>(),
                        accumulate);
      },
      [&]<class S>(void* stream) {
        return moe::launch_expert_load(experts, offsets.as<const std::int32_t>(),
                                       load.as<Accumulation<S>>(), accumulate, stream);
      });
}

void expert_bias_update(Queue& queue, const View& load, const View& bias, double rate,
                        const View& step_ok) {
  const Operands operands("expert_bias_update");
  operands.rank(load, "load", 1);
  const Dtype dtype = operands.storage(load, "load");
  const std::int64_t experts = load.extent(0);
  operands.check(load, "load", execution::accumulation(dtype), {experts});
  operands.same(bias, "bias", load);
  operands.check(step_ok, "step_ok", Dtype::int32, {1});
  run(
      queue, "expert_bias_update", dtype,
      [=, load = Address(load), bias = Address(bias), step_ok = Address(step_ok)]<class S>() {
        using A = Accumulation<S>;
        expert_bias_update_ref(experts, load.as<const A>(), bias.as<A>(), rate,
                               step_ok.as<const std::int32_t>());
      },
      [&]<class S>(void* stream) {
        using A = Accumulation<S>;
        return moe::launch_expert_bias_update(experts, load.as<const A>(), bias.as<A>(), rate,
                                              step_ok.as<const std::int32_t>(), stream);
      });
}

Cost expert_load_cost(std::int64_t experts, Dtype accumulation) {
  return {static_cast<double>(experts),
          bytes(experts + 1, Dtype::int32) + bytes(experts, accumulation)};
}

Cost expert_bias_update_cost(std::int64_t experts, Dtype accumulation) {
  return {4.0 * static_cast<double>(experts), 3 * bytes(experts, accumulation)};
}

}  // namespace stowage::kernels
