#include "drivers/common/measured_rates.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "drivers/common/machine_links.hpp"
#include "drivers/common/measured_ops.hpp"
#include "drivers/common/measured_shape.hpp"
#include "drivers/common/read_deck.hpp"
#include "drivers/common/words.hpp"
#include "execution/error.hpp"
#include "offload/rates.hpp"
#include "results/h5.hpp"
#include "results/result_set.hpp"

namespace stowage::drivers {
namespace {

using offload::Link;

struct Rate {
  const char* dataset;
  const char* key;
  bool median;  ///< of all sizes; otherwise the largest
};

constexpr Rate kRates[] = {{"gemm_bf16", "matmul_flops_per_s", true},
                           {"device_copy", "device_copy_bytes_per_s", false},
                           {"d2h", "d2h_bytes_per_s", false},
                           {"h2d", "h2d_bytes_per_s", false},
                           {"duplex", "duplex_bytes_per_s", false}};

/// What ran beside the copies, the first that was measured: attention needs tensor cores of its own
/// kind, and the times of large products vary with the board's power.
struct Victim {
  const char* key;
  std::vector<const char*> names;
};
const Victim kVictims[] = {{"arithmetic", {"attention", "products"}}, {"memory", {"copy_kernel"}}};

std::string list_override(const char* key, const std::vector<std::string>& lines) {
  std::string list;
  for (const std::string& line : lines)
    list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", line);
  return fmt::format("{}=[{}]", key, list);
}

/// Factors on compute beside copies in each direction.
void add_slowdowns(const results::h5::File& file, std::vector<std::string>& overrides) {
  for (const char* direction : {"d2h", "h2d"})
    for (const Victim& victim : kVictims)
      for (const char* name : victim.names) {
        const std::string path =
            fmt::format("metrics/ceilings/interference/{}/{}/slowdown", name, direction);
        if (!file.exists(path)) continue;
        double factor = 1;
        file.dataset(path).read(&factor);
        overrides.push_back(fmt::format("machine.{}_slowdown_{}={:.4f}", direction, victim.key,
                                        std::max(1.0, factor)));
        break;
      }
}

std::optional<Link> read_link(const results::h5::File& file, const std::string& at) {
  if (!file.exists(at + "/latency")) return std::nullopt;
  Link link;
  file.dataset(at + "/latency").read(&link.latency_s);
  file.dataset(at + "/bandwidth").read(&link.bytes_per_s);
  return link;
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

/// Lines of machine.links that say of `name`, where it has as many ranks, what was measured of ours
/// in a group: of all kinds of collectives together, then of each.
void add_links(const results::h5::File& file, const std::string& group, const std::string& name,
               const parallel::GridShape& shape, std::vector<std::string>& lines) {
  const std::string measured = "metrics/comm/" + group;
  const std::optional<parallel::Group> which = parallel::group_named(group);
  const int ranks = which ? link_ranks(shape, *which) : shape.ranks();
  for (const std::string& kind : file.group(measured).children()) {
    const bool all = kind == "link";
    const auto link =
        read_link(file, fmt::format("{}/{}{}", measured, kind, all ? "" : "/stowage"));
    if (!link) continue;
    lines.push_back(fmt::format("{}:{}{}{} {:.4e} {:.4e}", name, ranks, all ? "" : " ",
                                all ? "" : kind, link->latency_s, link->bytes_per_s));
  }
}

}  // namespace

std::vector<std::string> machine_overrides(const std::string& path) {
  const auto file = results::h5::File::open(path, results::kResultSchema);
  if (!file.exists("ceilings"))
    execution::throw_usage("--ceilings {}: not a result of stowage_ceilings", path);
  const results::h5::Group ceilings = file.group("ceilings");
  std::vector<std::string> overrides;
  for (const Rate& rate : kRates) {
    if (!ceilings.exists(rate.dataset))
      execution::throw_usage("--ceilings {}: no {} in it: not a result of stowage_ceilings", path,
                             rate.dataset);
    const results::h5::Dataset data = ceilings.dataset(rate.dataset);
    std::vector<double> values(static_cast<std::size_t>(data.shape().at(0)));
    data.read(values.data());
    if (values.empty()) execution::throw_usage("--ceilings {}: {} is empty", path, rate.dataset);
    std::sort(values.begin(), values.end());
    overrides.push_back(fmt::format("machine.{}={:.4e}", rate.key,
                                    rate.median ? values[values.size() / 2] : values.back()));
  }
  add_slowdowns(file, overrides);
  return overrides;
}

std::vector<std::string> link_overrides(const std::vector<std::string>& paths) {
  std::vector<std::string> links;
  double slowest_of_all = std::numeric_limits<double>::infinity();
  for (const std::string& path : paths) {
    const auto file = results::h5::File::open(path, results::kResultSchema);
    const std::vector<Measured> groups = measured_groups(file);
    if (groups.empty())
      execution::throw_usage(
          "--links {}: no link of a group in it: not a result of "
          "stowage_bench_comm, or of fewer than three sizes",
          path);
    const parallel::GridShape shape = measured_shape(path);
    for (const Measured& one : groups) add_links(file, one.group, one.group, shape, links);
    const Measured& slowest = *std::ranges::min_element(groups, {}, &Measured::bytes_per_s);
    add_links(file, slowest.group, "any", shape, links);
    slowest_of_all = std::min(slowest_of_all, slowest.bytes_per_s);
  }
  return {list_override("machine.links", links),
          fmt::format("machine.allreduce_bytes_per_s={:.4e}", slowest_of_all)};
}

std::vector<std::string> op_overrides(const std::vector<std::string>& paths,
                                      const inputs::Deck& deck) {
  const MeasuredOps measured = measured_ops(paths, deck);
  std::vector<std::string> overrides{list_override("machine.op_efficiency", measured.efficiency)};
  if (!measured.links.empty())
    overrides.push_back(list_override("machine.links_beside", measured.links));
  return overrides;
}

std::vector<results::NamedPath> MeasuredRates::files() const {
  std::vector<results::NamedPath> all;
  if (!ceilings.empty()) all.push_back({"the result set of --ceilings", ceilings});
  for (const std::string& path : words(links)) all.push_back({"a result set of --links", path});
  for (const std::string& path : words(ops)) all.push_back({"a result set of --ops", path});
  return all;
}

void add_measured(inputs::CommandLine& command, const MeasuredRates& rates) {
  std::vector<std::string> measured;
  const auto add = [&](const std::vector<std::string>& more) {
    measured.insert(measured.end(), more.begin(), more.end());
  };
  if (!rates.ceilings.empty()) add(machine_overrides(rates.ceilings));
  if (!rates.links.empty()) add(link_overrides(words(rates.links)));
  const auto given = command.overrides;
  const auto put_first = [&] {
    command.overrides = measured;
    command.overrides.insert(command.overrides.end(), given.begin(), given.end());
  };
  put_first();
  if (rates.ops.empty()) return;
  add(op_overrides(words(rates.ops), read_deck(command, false)));
  put_first();
}

}  // namespace stowage::drivers
