#include "forecast/layouts/fit.hpp"

#include <fmt/core.h>

#include "execution/error.hpp"
#include "forecast/plan/memory_table.hpp"

namespace stowage::forecast {

std::optional<Fit> plan_fit(const std::function<TrainerOptions()>& make, std::int64_t memory) {
  try {
    const TrainerPlan made(make());
    const execution::Plan& plan = made.training().front()->plan;
    const std::size_t copy = made.options().planner.policy.state_copy_bytes;
    const Fit fit{.device_bytes = plan.device_bytes() + copy,
                  .host_bytes = plan.bytes[static_cast<int>(execution::Region::host)],
                  .time_s = plan.time_s};
    if (fit.device_bytes <= static_cast<std::size_t>(memory)) return fit;
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::usage) throw;
  }
  return std::nullopt;
}

std::optional<LargestFit> largest_fit(std::int64_t most,
                                      const std::function<std::optional<Fit>(std::int64_t)>& plan) {
  std::optional<LargestFit> best;
  std::int64_t size = 0, step = 1;
  const auto fits = [&] {
    const std::optional<Fit> fit = plan(size + step);
    if (!fit) return false;
    size += step;
    best = {size, *fit};
    return true;
  };
  while (size + step <= most && fits()) step *= 2;
  for (step /= 2; step > 0; step /= 2)
    if (size + step <= most) fits();
  return best;
}

std::string fit_cells(const Fit& fit, bool timed) {
  return fmt::format("{:>12.3f}{:>10.3f}{:>13}", gib(fit.device_bytes), gib(fit.host_bytes),
                     timed ? fmt::format("{:.3f}", fit.time_s) : "-");
}

}  // namespace stowage::forecast
