#include "run/generate/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace stowage::run {

std::int32_t likeliest(std::span<const double> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

std::int32_t sample(std::span<const double> logits, const Sampling& sampling, double uniform) {
  if (sampling.temperature == 0) return likeliest(logits);
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  const double most = logits[static_cast<std::size_t>(order.front())];
  std::vector<double> sums;  // of the likeliest so far, over the probability of the first
  double sum = 0;
  for (const std::int32_t token : order)
    sums.push_back(
        sum += std::exp((logits[static_cast<std::size_t>(token)] - most) / sampling.temperature));
  const auto last = std::ranges::lower_bound(sums, sampling.top_p * sums.back());
  const auto drawn = std::upper_bound(sums.begin(), last, uniform * *last);
  return order[static_cast<std::size_t>(drawn - sums.begin())];
}

double log_probability(std::span<const double> logits, std::int32_t token) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  return logits[static_cast<std::size_t>(token)] - most - std::log(sum);
}

}  // namespace stowage::run
