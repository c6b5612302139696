#include "kernels/optimizer/guard.hpp"

#include "kernels/launch.hpp"
#include "kernels/optimizer/guard_step.hpp"

namespace stowage::kernels {

using execution::Dtype;
using execution::View;

void guard_step(execution::Queue& queue, const View& attempt, const View& norm,
                const View& good_steps, const View& running, const View& step_ok,
                const SpikeRule& rule) {
  const Operands operands("guard_step");
  operands.check(attempt, "attempt", Dtype::int64, {kAttemptWords});
  operands.check(good_steps, "good_steps", Dtype::int64, {1});
  operands.check(step_ok, "step_ok", Dtype::int32, {1});
  operands.require(norm.dtype() == Dtype::fp32 || norm.dtype() == Dtype::fp64,
                   "the norm is neither fp32 nor fp64");
  operands.check(norm, "norm", norm.dtype(), {1});
  if (running) {
    operands.check(running, "running", Dtype::fp64, {2});
    operands.require(rule.factor > 0 && rule.window > 0 && rule.most_in_a_row >= 0,
                     "a running norm without a rule for spikes");
  }
  execution::with_accumulation_type(norm.dtype(), [&]<class T>() {
    execution::parallel_for(
        queue, 1,
        detail::GuardStep<T>{attempt.as<const std::int64_t>(), norm.as<const T>(),
                             good_steps.as<const std::int64_t>(),
                             running ? running.as<double>() : nullptr, step_ok.as<std::int32_t>(),
                             rule.factor, rule.window, rule.most_in_a_row});
  });
}

}  // namespace stowage::kernels
