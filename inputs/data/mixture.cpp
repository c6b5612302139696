#include "inputs/data/mixture.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "execution/error.hpp"

namespace stowage::inputs {
namespace {

/// Counts that add up to kCycle, at least one each: the rest of what is rounded down goes to the
/// largest rests; what the smallest got above their weight is taken from the largest counts.
std::vector<std::int32_t> rounded(std::span<const double> weights) {
  const double sum = std::reduce(weights.begin(), weights.end());
  std::vector<std::int32_t> counts;
  std::vector<std::size_t> order(weights.size());
  std::vector<double> rests;
  for (const double weight : weights) {
    const double wanted = std::max(1.0, weight / sum * Mixture::kCycle);
    counts.push_back(static_cast<std::int32_t>(wanted));
    rests.push_back(wanted - std::floor(wanted));
  }
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return rests[i]; });
  std::int64_t left = Mixture::kCycle - std::reduce(counts.begin(), counts.end(), std::int64_t{0});
  for (std::size_t i = 0; left > 0; --left, i = (i + 1) % order.size()) ++counts[order[i]];
  for (; left < 0; ++left) --*std::ranges::max_element(counts);
  return counts;
}

}  // namespace

Mixture::Mixture(std::span<const double> weights) {
  STOWAGE_ASSERT(!weights.empty() && weights.size() <= kMostSources, "a mixture of {} sources",
                 weights.size());
  counts_ = rounded(weights);
  if (weights.size() == 1) return;
  // The source that is farthest behind its share is next; of equal ones the first.
  std::vector<std::int64_t> taken(weights.size());
  cycle_.reserve(static_cast<std::size_t>(kCycle));
  for (std::int64_t n = 0; n < kCycle; ++n) {
    std::size_t next = 0;
    std::int64_t most = std::numeric_limits<std::int64_t>::min();
    for (std::size_t i = 0; i < taken.size(); ++i) {
      const std::int64_t behind = counts_[i] * (n + 1) - taken[i] * kCycle;
      if (behind <= most) continue;
      most = behind;
      next = i;
    }
    cycle_.push_back({next, taken[next]++});
  }
}

Mixture::Sample Mixture::at(std::int64_t sample) const {
  if (cycle_.empty()) return {0, sample};
  const Sample& own = cycle_[static_cast<std::size_t>(sample % kCycle)];
  return {own.source, sample / kCycle * counts_[own.source] + own.index};
}

double Mixture::share(std::size_t source) const {
  return static_cast<double>(counts_[source]) / static_cast<double>(kCycle);
}

}  // namespace stowage::inputs
