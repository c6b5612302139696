#include "forecast/measured/measured_rates.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

#include "execution/error.hpp"
#include "forecast/measured/measured_ops.hpp"
#include "forecast/measured/measured_shape.hpp"
#include "forecast/plan/read_deck.hpp"
#include "forecast/rates/link_fit.hpp"
#include "forecast/rates/machine_links.hpp"
#include "inputs/deck/shipped.hpp"
#include "inputs/deck/words.hpp"
#include "offload/rates.hpp"
#include "results/h5.hpp"
#include "results/result_set.hpp"

namespace stowage::forecast {
namespace {

namespace fs = std::filesystem;

using offload::Link;

struct Rate {
  const char* dataset;
  double MachineFacts::*fact;
  bool median;  ///< of all sizes; otherwise the largest
};

constexpr Rate kRates[] = {{"gemm_bf16", &MachineFacts::matmul_flops_per_s, true},
                           {"device_copy", &MachineFacts::device_copy_bytes_per_s, false},
                           {"d2h", &MachineFacts::d2h_bytes_per_s, false},
                           {"h2d", &MachineFacts::h2d_bytes_per_s, false},
                           {"duplex", &MachineFacts::duplex_bytes_per_s, false}};

/// What ran beside the copies, the first that was measured: attention needs tensor cores of its own
/// kind, and the times of large products vary with the board's power.
const std::vector<const char*> kArithmetic = {"attention", "products"};
const std::vector<const char*> kMemory = {"copy_kernel"};

/// Factor on the time of the first of `victims` beside copies in a direction; 0: not measured.
double measured_slowdown(const results::h5::File& file, const char* direction,
                         const std::vector<const char*>& victims) {
  for (const char* victim : victims) {
    const std::string path =
        fmt::format("metrics/ceilings/interference/{}/{}/slowdown", victim, direction);
    if (file.exists(path))
      return round_digits(std::max(1.0, file.dataset(path).value()), kRateDigits);
  }
  return 0;
}

offload::Slowdown measured_slowdowns(const results::h5::File& file, const char* direction) {
  return {measured_slowdown(file, direction, kArithmetic),
          measured_slowdown(file, direction, kMemory)};
}

std::optional<Link> read_link(const results::h5::File& file, const std::string& at) {
  if (!file.exists(at + "/latency")) return std::nullopt;
  return Link{.latency_s = file.dataset(at + "/latency").value(),
              .bytes_per_s = file.dataset(at + "/bandwidth").value()};
}

/// Medians of ours in a group, of one kind or of all, in place where a kind can be.
struct Times {
  std::vector<double> bytes;  ///< that a rank sends at least
  std::vector<double> time_s;
};

Times measured_times(const results::h5::File& file, const std::string& group,
                     const std::string& kind) {
  Times times;
  for (const std::string& one : file.group("metrics/comm/" + group).children()) {
    const std::string ours = fmt::format("metrics/comm/{}/{}/stowage", group, one);
    if ((!kind.empty() && one != kind) || !file.exists(ours)) continue;
    const std::string place = file.exists(ours + "/in_place") ? "/in_place" : "/out_of_place";
    if (!file.exists(ours + place)) continue;
    for (const std::string& size : file.group(ours + place).children()) {
      const std::string at = fmt::format("{}{}/{}", ours, place, size);
      times.time_s.push_back(file.dataset(at + "/time").value());
      times.bytes.push_back(times.time_s.back() * file.dataset(at + "/busbw").value());
    }
  }
  return times;
}

/// Refuses a link that its own times contradict: a plan by it would be of no machine.
void require_fit(const results::h5::File& file, const std::string& path, const std::string& group,
                 const std::string& kind, const Link& link) {
  const Times times = measured_times(file, group, kind);
  const double off = worst_factor(link, times.bytes, times.time_s);
  if (off > kMostOff)
    execution::throw_usage(
        "--links {}: {:.4g} us + bytes / {:.4g} GB/s of group {}{} is {:.1f} times off what was "
        "measured; at most {} times is a link: measure it again with nothing beside it",
        path, 1e6 * link.latency_s, 1e-9 * link.bytes_per_s, group, kind.empty() ? "" : ", " + kind,
        off, kMostOff);
}

/// A group of which all kinds of collectives together were measured.
struct Measured {
  std::string group;
  double bytes_per_s;
};

std::vector<Measured> measured_groups(const results::h5::File& file) {
  std::vector<Measured> found;
  if (!file.exists("metrics/comm")) return found;
  for (const std::string& group : file.group("metrics/comm").children())
    if (const auto link = read_link(file, fmt::format("metrics/comm/{}/link", group)))
      found.push_back({group, link->bytes_per_s});
  return found;
}

/// Adds links for `name`, where it has as many ranks, as measured of ours in a group: of all kinds
/// of collectives together, then of each.
void add_links(const results::h5::File& file, const std::string& path, const std::string& group,
               const std::string& name, const parallel::GridShape& shape,
               std::vector<GroupLink>& links) {
  const std::string measured = "metrics/comm/" + group;
  const std::optional<parallel::Group> which = parallel::group_named(group);
  const int ranks = which ? link_ranks(shape, *which) : shape.ranks();
  for (const std::string& kind : file.group(measured).children()) {
    const bool all = kind == "link";
    const auto link =
        read_link(file, fmt::format("{}/{}{}", measured, kind, all ? "" : "/stowage"));
    if (!link) continue;
    require_fit(file, path, group, all ? "" : kind, *link);
    links.push_back({name,
                     ranks,
                     all ? "" : kind,
                     {round_digits(link->latency_s, kRateDigits),
                      round_digits(link->bytes_per_s, kRateDigits)}});
  }
}

MachineFacts ceilings_of(const results::h5::File& file, const std::string& path) {
  if (!file.exists("ceilings"))
    execution::throw_usage("--ceilings {}: not a result of stowage_ceilings", path);
  const results::h5::Group ceilings = file.group("ceilings");
  MachineFacts facts;
  for (const Rate& rate : kRates) {
    if (!ceilings.exists(rate.dataset))
      execution::throw_usage("--ceilings {}: no {} in it: not a result of stowage_ceilings", path,
                             rate.dataset);
    std::vector<double> values = ceilings.dataset(rate.dataset).values();
    if (values.empty()) execution::throw_usage("--ceilings {}: {} is empty", path, rate.dataset);
    std::sort(values.begin(), values.end());
    facts.*rate.fact =
        round_digits(rate.median ? values[values.size() / 2] : values.back(), kRateDigits);
  }
  facts.d2h_slowdown = measured_slowdowns(file, "d2h");
  facts.h2d_slowdown = measured_slowdowns(file, "h2d");
  return facts;
}

/// Adds the links of one set. @return bytes/s of its slowest group
double add_links_of(const results::h5::File& file, const std::string& path,
                    std::vector<GroupLink>& links) {
  const std::vector<Measured> groups = measured_groups(file);
  if (groups.empty())
    execution::throw_usage(
        "--links {}: no link of a group in it: not a result of "
        "stowage_bench_comm, or of fewer than three sizes, or of times that are of no link",
        path);
  const parallel::GridShape shape = measured_shape(path);
  for (const Measured& one : groups) add_links(file, path, one.group, one.group, shape, links);
  const Measured& slowest = *std::ranges::min_element(groups, {}, &Measured::bytes_per_s);
  add_links(file, path, slowest.group, "any", shape, links);
  return slowest.bytes_per_s;
}

}  // namespace

std::string machine_file(const std::string& name_or_path) {
  return inputs::shipped_file("--machine", "machines", name_or_path);
}

inputs::Deck::Settings machine_file_settings(const std::string& path) {
  // A deck needs a model and data; this one is of neither.
  const std::string stand_ins[] = {"model.pattern=M-", "data.source=synthetic"};
  const inputs::Deck file = inputs::Deck::load(path, stand_ins);
  inputs::Deck::Settings settings;
  for (const inputs::Deck::Row& row : file.rows()) {
    const std::string& where = file.where(row.key);
    if (row.is_default || where == "command line" || where == "derived") continue;
    if (row.parameter.section() != "machine")
      execution::throw_usage("--machine {}: sets {}; allowed: keys of [machine]", path,
                             file.cite(row.key));
    settings.emplace(row.key, row.value);
  }
  return settings;
}

MachineFacts measured_ceilings(const std::string& path) {
  return results::h5::read_file(path, results::kResultSchema, [&](const results::h5::File& file) {
    return ceilings_of(file, path);
  });
}

MachineFacts measured_links(const std::vector<std::string>& paths) {
  MachineFacts facts;
  double slowest_of_all = std::numeric_limits<double>::infinity();
  for (const std::string& path : paths)
    slowest_of_all = std::min(
        slowest_of_all,
        results::h5::read_file(path, results::kResultSchema, [&](const results::h5::File& file) {
          return add_links_of(file, path, facts.links);
        }));
  facts.allreduce_bytes_per_s = round_digits(slowest_of_all, kRateDigits);
  return facts;
}

std::vector<results::NamedPath> MeasuredRates::files() const {
  std::vector<results::NamedPath> all;
  if (!machine.empty()) all.push_back({"the file of --machine", machine_file(machine)});
  if (!ceilings.empty()) all.push_back({"the result set of --ceilings", ceilings});
  for (const std::string& path : inputs::words(links))
    all.push_back({"a result set of --links", path});
  for (const std::string& path : inputs::words(ops)) all.push_back({"a result set of --ops", path});
  return all;
}

inputs::Deck read_measured_deck(const inputs::CommandLine& command, const MeasuredRates& rates,
                                bool speaks) {
  inputs::Deck deck = read_deck(command, speaks);
  inputs::Deck::Settings measured;
  const auto add = [&](const inputs::Deck::Settings& settings) {
    for (const auto& [key, value] : settings) measured.insert_or_assign(key, value);
  };
  if (!rates.machine.empty()) add(machine_file_settings(machine_file(rates.machine)));
  if (!rates.ceilings.empty()) add(machine_settings(measured_ceilings(rates.ceilings)));
  if (!rates.links.empty()) add(machine_settings(measured_links(inputs::words(rates.links))));
  if (!rates.ops.empty()) {
    inputs::Deck machine = deck;
    machine.put(measured);
    add(machine_settings(measured_ops(inputs::words(rates.ops), machine_facts(machine))));
  }
  deck.put(measured);
  return deck;
}

}  // namespace stowage::forecast
