#include "forecast/plan/choose_states.hpp"

#include <cstdint>
#include <optional>
#include <string>

#include "execution/error.hpp"
#include "forecast/plan/memory_table.hpp"

namespace stowage::forecast {
namespace {

using offload::Policy;

/// How often the interval of the fraction is halved: up to 1 % of the states leaves in vain.
constexpr int kHalvings = 7;

/// Plans with a part of the states on the host, in which the policy moves nothing by itself.
class Trials {
 public:
  explicit Trials(const TrainerOptions& options) : options_(options) {
    options_.state.host.automatic = false;
    options_.capacities = {options.capacities.back()};
    options_.larger_classes = false;
    options_.evaluation_microbatches = 0;
    Policy& policy = options_.planner.policy;
    if (policy.kind == Policy::Kind::automatic) policy.kind = Policy::Kind::none;
  }

  /// Bytes that the device lacks; nothing if the host has no room.
  std::optional<std::int64_t> lacks(double fraction) {
    options_.state.host.fraction = fraction;
    try {
      const TrainerPlan plan(options_);
      const std::size_t needed = plan.layout().bytes() + plan.transient_bytes() +
                                 (options_.state_copy ? plan.state_copy_bytes() : 0);
      return static_cast<std::int64_t>(needed) - options_.planner.policy.device_budget_bytes;
    } catch (const execution::Error& error) {
      if (error.exit() != execution::Exit::usage) throw;
      why_ = error.what();
      return std::nullopt;
    }
  }

  /// Why the host had no room last.
  const std::string& why() const { return why_; }

 private:
  TrainerOptions options_;
  std::string why_;
};

}  // namespace

layers::StatesOnHost choose_states(const TrainerOptions& options) {
  layers::StatesOnHost chosen = options.state.host;
  chosen.automatic = false;
  Trials trials(options);
  double high = chosen.fraction;
  std::optional<std::int64_t> lacks;
  // Where the host has no room for all of them, it may have for fewer.
  for (int eighths = 8; eighths > 0 && !lacks; --eighths)
    lacks = trials.lacks(high = chosen.fraction * eighths / 8);
  if (!lacks)
    execution::throw_usage("offload.states = [\"auto\"]: the host has room for no part of them: {}",
                           trials.why());
  if (*lacks > 0 && options.planner.policy.kind != Policy::Kind::automatic)
    execution::throw_usage(
        "offload.states = [\"auto\"]: with {:.0f} % of the optimizer states on the host, a rank "
        "still lacks {:.3f} GiB ({} bytes) of offload.device_budget_bytes",
        100 * high, gib(*lacks), *lacks);
  double low = 0;
  if (*lacks <= 0 && trials.lacks(low).value_or(1) <= 0) high = low;
  for (int i = 0; i < kHalvings && *lacks <= 0 && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    (trials.lacks(middle).value_or(1) <= 0 ? high : low) = middle;
  }
  chosen.fraction = high;
  return chosen;
}

}  // namespace stowage::forecast
