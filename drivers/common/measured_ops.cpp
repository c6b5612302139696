#include "drivers/common/measured_ops.hpp"

#include <fmt/core.h>

#include <map>
#include <optional>
#include <variant>

#include "drivers/common/link_fit.hpp"
#include "drivers/common/machine_links.hpp"
#include "drivers/common/measured_shape.hpp"
#include "drivers/common/options.hpp"
#include "execution/error.hpp"
#include "results/h5.hpp"
#include "results/result_set.hpp"
#include "results/statistics.hpp"

namespace stowage::drivers {
namespace {

/// Ops of a kind in one step.
struct Timed {
  std::string queue;
  std::string collective;  ///< empty: they compute
  double calls = 0;
  execution::Cost cost;  ///< of all of them
  double time_s = 0;     ///< median of the timed steps
};

double real(const results::h5::Dataset& data, const char* name) {
  const std::optional<results::Value> value = data.attribute(name);
  if (!value) return 0;
  if (const auto* whole = std::get_if<std::int64_t>(&*value)) return static_cast<double>(*whole);
  return std::get<double>(*value);
}

Timed read(const results::h5::Dataset& data) {
  std::vector<double> time_s(static_cast<std::size_t>(data.shape().at(0)));
  data.read(time_s.data());
  return {data.text_attribute("queue"),
          data.text_attribute("collective"),
          real(data, "calls"),
          {real(data, "flops"), real(data, "bytes"), real(data, "idle_flops"),
           real(data, "apart_bytes"), real(data, "more_kernels")},
          results::summarize(time_s).median};
}

/// What several sets say of one kind.
struct Sum {
  double expected_s = 0;
  double measured_s = 0;
};

struct Points {
  std::vector<double> bytes, time_s;
};

/// The group whose ranks a queue of communication meets: "comm expert" has its name.
std::optional<parallel::Group> group_of(const Timed& timed) {
  constexpr std::string_view kComm = "comm ";
  if (!timed.queue.starts_with(kComm)) return std::nullopt;
  return parallel::group_named(std::string_view(timed.queue).substr(kComm.size()));
}

}  // namespace

MeasuredOps measured_ops(const std::vector<std::string>& paths, const inputs::Deck& deck) {
  offload::Rates rates = machine_rates(deck, {});
  rates.efficiency.clear();
  std::map<std::string, Sum> computing;
  std::map<std::pair<std::string, int>, Points> communicating;  // by kind and ranks
  for (const std::string& path : paths) {
    const auto file = results::h5::File::open(path, results::kResultSchema);
    if (!file.exists("samples/ops"))
      execution::throw_usage("--ops {}: no ops in it: not a result of stowage_train --time-ops",
                             path);
    const results::h5::Group ops = file.group("samples/ops");
    const parallel::GridShape shape = measured_shape(path);
    for (const std::string& kind : ops.datasets()) {
      if (kind.starts_with("rerun of ")) continue;  // of the same efficiency
      const Timed timed = read(ops.dataset(kind));
      if (!(timed.time_s > 0 && timed.calls > 0)) continue;
      if (timed.queue == "compute") {
        Sum& sum = computing[kind];
        sum.expected_s += timed.calls * rates.roofline_s(1 / timed.calls * timed.cost);
        sum.measured_s += timed.time_s;
      } else if (const auto group = group_of(timed); group && !timed.collective.empty()) {
        Points& points = communicating[{timed.collective, link_ranks(shape, *group)}];
        points.bytes.push_back(timed.cost.bytes / timed.calls);
        points.time_s.push_back(timed.time_s / timed.calls);
      }
    }
  }
  MeasuredOps measured;
  for (const auto& [kind, sum] : computing)
    measured.efficiency.push_back(fmt::format("{} {:.3g}", kind, sum.expected_s / sum.measured_s));
  for (const auto& [of, points] : communicating)
    if (const auto link = fit_link(points.bytes, points.time_s))
      measured.links.push_back(fmt::format("any:{} {} {:.3e} {:.3e}", of.second, of.first,
                                           link->latency_s, link->bytes_per_s));
  return measured;
}

}  // namespace stowage::drivers
