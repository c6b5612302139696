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

struct Ranked {
  Interval interval;
  double coverage = 0;
};

// The number of samples below the median is Binomial(n, 1/2). The interval from the k-th smallest
// to the k-th largest sample misses the median with probability 2 P(Binomial <= k - 1): take the
// largest k for which that is at most `miss` (David and Nagaraja, Order Statistics, section 7.1).
Ranked ranked_interval(std::span<const double> sorted, double miss) {
  const auto n = static_cast<double>(sorted.size());
  double missed = 2 * binomial_half(n, 0);
  if (sorted.empty() || missed > miss) return {};
  std::size_t k = 1;
  while (2 * k < sorted.size()) {
    const double wider = missed + 2 * binomial_half(n, static_cast<double>(k));
    if (wider > miss) break;
    missed = wider;
    ++k;
  }
  return {{sorted[k - 1], sorted[sorted.size() - k]}, std::max(0.0, 1 - missed)};
}

bool any_nan(std::span<const double> samples) {
  return std::any_of(samples.begin(), samples.end(), [](double one) { return std::isnan(one); });
}

}  // namespace

double quantile(std::span<const double> samples, double q) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted_quantile(sorted, q);
}

Interval median_interval(std::span<const double> samples, double confidence) {
  if (any_nan(samples)) return {};
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return ranked_interval(sorted, 1 - confidence).interval;
}

Interval quotient_interval(std::span<const double> over, std::span<const double> under) {
  constexpr double kEach = 0.975;
  const Interval above = median_interval(over, kEach), below = median_interval(under, kEach);
  return {above.low / below.high, above.high / below.low};
}

Summary summarize(std::span<const double> samples) {
  Summary summary{.count = static_cast<std::int64_t>(samples.size())};
  if (samples.empty() || any_nan(samples)) return summary;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  summary.median = sorted_quantile(sorted, 0.5);
  const Ranked ranked = ranked_interval(sorted, 0.05);
  summary.ci95 = ranked.interval;
  summary.coverage = ranked.coverage;
  return summary;
}

}  // namespace stowage::results
