#include "results/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace stowage::results {
namespace {

double sorted_quantile(std::span<const double> sorted, double q) {
  if (sorted.empty()) return kNone;
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - static_cast<double>(below));
}

// P(Binomial(n, 1/2) = k). The log-gamma function keeps it finite for any n.
double binomial_half(double n, double k) {
  return std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) -
                  n * std::log(2.0));
}

// The number of samples below the median is Binomial(n, 1/2). The interval from the k-th smallest
// to the k-th largest sample misses the median with probability 2 P(Binomial <= k - 1): take the
// largest k for which that is at most 5 % (David and Nagaraja, Order Statistics, section 7.1).
void set_interval(Summary& summary, std::span<const double> sorted) {
  const auto n = static_cast<double>(sorted.size());
  if (static_cast<std::int64_t>(sorted.size()) < kLeastForInterval) return;
  std::size_t k = 1;
  double missed = 2 * binomial_half(n, 0);
  while (2 * k < sorted.size()) {
    const double wider = missed + 2 * binomial_half(n, static_cast<double>(k));
    if (wider > 0.05) break;
    missed = wider;
    ++k;
  }
  summary.ci95 = {sorted[k - 1], sorted[sorted.size() - k]};
  summary.coverage = std::max(0.0, 1 - missed);
}

}  // namespace

double quantile(std::span<const double> samples, double q) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted_quantile(sorted, q);
}

Summary summarize(std::span<const double> samples) {
  Summary summary{.count = static_cast<std::int64_t>(samples.size())};
  const auto is_nan = [](double sample) { return std::isnan(sample); };
  if (samples.empty() || std::any_of(samples.begin(), samples.end(), is_nan)) return summary;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  summary.median = sorted_quantile(sorted, 0.5);
  summary.p10 = sorted_quantile(sorted, 0.1);
  summary.p90 = sorted_quantile(sorted, 0.9);
  set_interval(summary, sorted);
  for (double& sample : sorted) sample = std::abs(sample - summary.median);
  summary.mad = quantile(sorted, 0.5);
  return summary;
}

}  // namespace stowage::results
