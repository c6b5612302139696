#include "drivers/bench_kernels/agreement.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "execution/dtype.hpp"

namespace stowage::drivers::bench {

using execution::Dtype;

std::string some_of(std::int64_t compared, std::int64_t all, const std::string& what) {
  return compared >= all ? "all " + what : fmt::format("{} of {} {}", compared, all, what);
}

std::string formula(const Agreement& agreement) {
  if (agreement.ratio) return "error of ours / error of this peer";
  const std::string over = agreement.over.empty() ? "" : " over " + agreement.over;
  return agreement.measure + over + ", reference in fp64";
}

std::optional<double> worst_error(const std::vector<Agreement>& agreements) {
  std::optional<double> worst;
  for (const Agreement& one : agreements) {
    if (one.ratio) continue;
    if (std::isnan(one.error)) return one.error;
    worst = std::max(worst.value_or(0), one.error);
  }
  return worst;
}

double tree_tolerance(double terms) {
  return execution::epsilon(Dtype::fp32) * (std::sqrt(std::log2(std::max(terms, 1.0))) + 4);
}

double tensor_core_tolerance(double terms) {
  return execution::epsilon(Dtype::fp32) * (0.5 * std::ceil(terms / 16) + 4);
}

double relative_error(const std::vector<double>& out, const std::vector<double>& reference) {
  if (out.size() != reference.size()) return std::numeric_limits<double>::quiet_NaN();
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    difference += (out[i] - reference[i]) * (out[i] - reference[i]);
    size += reference[i] * reference[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace stowage::drivers::bench
