#include "forecast/plan/choose_states.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "execution/error.hpp"
#include "forecast/plan/memory_table.hpp"

namespace stowage::forecast {
namespace {

using offload::Policy;

/// How often the interval of the fraction is halved: up to 1 % of the states leaves in vain.
constexpr int kHalvings = 7;
/// Of gradients, and of parameters, so many equal parts leave one after the other.
constexpr int kParts = 4;

/// Plans with a part of the states on the host, in which the policy moves nothing by itself.
class Trials {
 public:
  explicit Trials(const TrainerOptions& options) : options_(options) {
    options_.capacities = {options.capacities.back()};
    options_.larger_classes = false;
    options_.evaluation_microbatches = 0;
    Policy& policy = options_.planner.policy;
    if (policy.kind == Policy::Kind::automatic) policy.kind = Policy::Kind::none;
  }

  /// Bytes that the device lacks; nothing if the host has no room.
  std::optional<std::int64_t> lacks(const layers::StatesOnHost& host) {
    options_.state.host = host;
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

/// What leaves where all states on the host lack so many bytes: the policy sees to the rest, if it
/// moves anything; else gradients and parameters do.
layers::StatesOnHost choose_more(const TrainerOptions& options, const layers::StatesOnHost& states,
                                 std::int64_t lacks, Trials& trials) {
  if (options.planner.policy.kind == Policy::Kind::automatic) return states;
  std::string_view what = "the optimizer states";
  for (const layers::StatesOnHost& more : last_resorts(states)) {
    const std::optional<std::int64_t> left = trials.lacks(more);
    if (!left) break;
    if (*left <= 0) return more;
    lacks = *left;
    what = more.last == layers::kGradient ? "the optimizer states and gradients"
                                          : "the optimizer states, gradients and parameters";
  }
  execution::throw_usage(
      "offload.states = [\"auto\"]: with {:.0f} % of {} on the host, a rank still lacks {:.3f} GiB "
      "({} bytes) of offload.device_budget_bytes",
      100 * states.fraction, what, gib(lacks), lacks);
}

}  // namespace

std::vector<layers::StatesOnHost> last_resorts(layers::StatesOnHost host) {
  std::vector<layers::StatesOnHost> all;
  for (const std::string_view name : {layers::kGradient, layers::kParameter}) {
    host.last = name;
    for (int part = 1; part <= kParts; ++part) {
      host.last_fraction = host.fraction * part / kParts;
      all.push_back(host);
    }
    host.names.emplace_back(name);
  }
  return all;
}

layers::StatesOnHost choose_states(const TrainerOptions& options) {
  layers::StatesOnHost chosen = options.state.host;
  chosen.automatic = false;
  const double most = chosen.fraction;
  Trials trials(options);
  const auto lacks_with = [&](double fraction) {
    chosen.fraction = fraction;
    return trials.lacks(chosen);
  };
  std::optional<std::int64_t> lacks;
  // Where the host has no room for all of them, it may have for fewer.
  for (int eighths = 8; eighths > 0 && !lacks; --eighths) lacks = lacks_with(most * eighths / 8);
  if (!lacks)
    execution::throw_usage("offload.states = [\"auto\"]: the host has room for no part of them: {}",
                           trials.why());
  if (*lacks > 0) return choose_more(options, chosen, *lacks, trials);
  double low = 0, high = chosen.fraction;
  if (lacks_with(low).value_or(1) <= 0) high = low;
  for (int i = 0; i < kHalvings && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    (lacks_with(middle).value_or(1) <= 0 ? high : low) = middle;
  }
  chosen.fraction = high;
  return chosen;
}

}  // namespace stowage::forecast
