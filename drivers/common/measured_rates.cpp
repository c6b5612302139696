#include "drivers/common/measured_rates.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "execution/error.hpp"
#include "results/h5.hpp"
#include "results/result_set.hpp"

namespace stowage::drivers {
namespace {

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

std::vector<std::string> link_overrides(const std::string& path) {
  const auto file = results::h5::File::open(path, results::kResultSchema);
  std::string links;
  double least_bytes_per_s = std::numeric_limits<double>::infinity();
  if (file.exists("metrics/comm"))
    for (const std::string& group : file.group("metrics/comm").children()) {
      const std::string link = fmt::format("metrics/comm/{}/link", group);
      if (!file.exists(link)) continue;
      double latency_s = 0, bytes_per_s = 0;
      file.dataset(link + "/latency").read(&latency_s);
      file.dataset(link + "/bandwidth").read(&bytes_per_s);
      links += fmt::format("{}\"{} {:.4e} {:.4e}\"", links.empty() ? "" : ", ", group, latency_s,
                           bytes_per_s);
      least_bytes_per_s = std::min(least_bytes_per_s, bytes_per_s);
    }
  if (links.empty())
    execution::throw_usage(
        "--links {}: no link of a group in it: not a result of "
        "stowage_bench_comm, or of fewer than three sizes",
        path);
  return {fmt::format("machine.links=[{}]", links),
          fmt::format("machine.allreduce_bytes_per_s={:.4e}", least_bytes_per_s)};
}

void add_measured(inputs::CommandLine& command, const MeasuredRates& rates) {
  const auto put_first = [&](const std::vector<std::string>& measured) {
    command.overrides.insert(command.overrides.begin(), measured.begin(), measured.end());
  };
  if (!rates.links.empty()) put_first(link_overrides(rates.links));
  if (!rates.ceilings.empty()) put_first(machine_overrides(rates.ceilings));
}

}  // namespace stowage::drivers
