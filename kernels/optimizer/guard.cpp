#include "kernels/optimizer/guard.hpp"

#include "kernels/optimizer/guard_step.hpp"

namespace stowage::kernels {

std::string GuardStep::fault() const {
  const bool is_rule = rule.factor > 0 && rule.window > 0 && rule.most_in_a_row >= 0;
  return has_running && !is_rule ? "a running norm without a rule for spikes" : "";
}

void GuardStep::run(execution::Queue& queue, const Operands<execution::View>& views) const {
  check(*this, views);
  execution::with_accumulation_type(execution::accumulation(storage), [&]<class T>() {
    execution::parallel_for(
        queue, 1,
        detail::GuardStep<T>{views.attempt.as<const std::int64_t>(), views.norm.as<const T>(),
                             views.good_steps.as<const std::int64_t>(),
                             has_running ? views.running.as<double>() : nullptr,
                             views.step_ok.as<std::int32_t>(), rule.factor, rule.window,
                             rule.most_in_a_row});
  });
}

}  // namespace stowage::kernels
