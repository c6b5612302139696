#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/exponential.hpp"
#include "kernels/moe/router.hpp"
#include "kernels/reduce.hpp"
#include "kernels/silu.hpp"

namespace stowage::kernels::detail {

/// log(sum over e of exp(logits[e])), safe against overflow.
template <class A>
A logsumexp(std::int64_t experts, const A* logits) {
  const A top = *std::max_element(logits, logits + experts);
  return top + std::log(ordered_sum<A>(
                   experts, [=](std::int64_t e) { return exponential(logits[e] - top); }));
}

/// scores (E) of one token: softmax of its logits.
template <class A>
void softmax(std::int64_t experts, const A* logits, A* scores) {
  const A lse = logsumexp(experts, logits);
  for (std::int64_t e = 0; e < experts; ++e) scores[e] = exponential(logits[e] - lse);
}

/// scores (E) of one token: sigmoid of each logit, or their softmax.
template <class A>
void router_scores(const RouterOptions& options, const A* logits, A* scores) {
  if (!options.sigmoid) return softmax(options.experts, logits, scores);
  for (std::int64_t e = 0; e < options.experts; ++e) scores[e] = sigmoid(logits[e]);
}

/// Keeps a token's normalisation finite when all its scores underflow.
inline constexpr double kScoreFloor = 1e-20;

/// The sum by which scores (E) are divided to give the distribution over experts that the aux loss
/// sees.
template <class A>
A score_sum(const RouterOptions& options, const A* scores) {
  return static_cast<A>(kScoreFloor) +
         ordered_sum<A>(options.experts, [=](std::int64_t e) { return scores[e]; });
}

}  // namespace stowage::kernels::detail
