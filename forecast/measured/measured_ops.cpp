#include "forecast/measured/measured_ops.hpp"

#include <map>
#include <optional>
#include <variant>

#include "execution/error.hpp"
#include "forecast/measured/measured_shape.hpp"
#include "forecast/rates/link_fit.hpp"
#include "forecast/rates/machine_links.hpp"
#include "results/h5.hpp"
#include "results/result_set.hpp"
#include "results/statistics.hpp"

namespace stowage::forecast {
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
  const results::Value value = data.attribute(name).value_or(0.0);
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* found = std::get_if<double>(&value)) return *found;
  execution::throw_usage("the attribute {} of an op is no number", name);
}

Timed read(const results::h5::Dataset& data) {
  const std::vector<double> time_s = data.values();
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

using Computing = std::map<std::string, Sum>;
using Communicating = std::map<std::pair<std::string, int>, Points>;  // by kind and ranks

/// Adds what one set says of its ops.
void add_ops(const results::h5::File& file, const std::string& path, const offload::Rates& rates,
             Computing& computing, Communicating& communicating) {
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

}  // namespace

MachineFacts measured_ops(const std::vector<std::string>& paths, MachineFacts machine) {
  machine.op_efficiency.clear();
  const offload::Rates rates = machine_rates(machine, {});
  Computing computing;
  Communicating communicating;
  for (const std::string& path : paths)
    results::h5::read_file(path, results::kResultSchema, [&](const results::h5::File& file) {
      add_ops(file, path, rates, computing, communicating);
    });
  MachineFacts measured;
  for (const auto& [kind, sum] : computing)
    measured.op_efficiency[kind] = round_digits(sum.expected_s / sum.measured_s, kEfficiencyDigits);
  for (const auto& [of, points] : communicating)
    if (const auto link = fit_link(points.bytes, points.time_s))
      measured.links_with_compute.push_back({"any",
                                             of.second,
                                             of.first,
                                             {round_digits(link->latency_s, kFitDigits),
                                              round_digits(link->bytes_per_s, kFitDigits)}});
  return measured;
}

}  // namespace stowage::forecast
