#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/moe/router.hpp"
#include "kernels/moe/scores.hpp"

namespace stowage::kernels {

namespace {

constexpr std::int64_t kTokens = 32;

// Index of the largest of count values, the lowest of equals; a NaN is never larger.
template <class A>
std::int64_t argmax(std::int64_t count, const A* values) {
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < count; ++i)
    if (values[i] > values[best]) best = i;
  return best;
}

// Sum of the two largest of count values, or the only one.
template <class A>
A top2_sum(std::int64_t count, const A* values) {
  A first = -std::numeric_limits<A>::infinity(), second = first;
  for (std::int64_t i = 0; i < count; ++i) {
    second = std::max(second, std::min(first, values[i]));
    first = std::max(first, values[i]);
  }
  return count > 1 ? first + second : first;
}

// Takes the experts of all but the best groups out of the running.
template <class A>
void limit_groups(const RouterOptions& options, A* preference, std::vector<A>& group_score) {
  constexpr A kOut = -std::numeric_limits<A>::infinity();
  const std::int64_t size = options.experts / options.groups;
  for (std::int64_t g = 0; g < options.groups; ++g)
    group_score[g] = top2_sum(size, preference + g * size);
  std::vector<bool> chosen(static_cast<std::size_t>(options.groups));
  for (int k = 0; k < options.group_topk; ++k) {
    const auto best = static_cast<std::size_t>(argmax(options.groups, group_score.data()));
    chosen[best] = true;
    group_score[best] = kOut;
  }
  for (std::int64_t g = 0; g < options.groups; ++g)
    if (!chosen[g]) std::fill_n(preference + g * size, size, kOut);
}

// The experts of the smallest keys, in their order.
void draw_experts(const RouterOptions& options, std::int64_t token, std::int32_t* chosen) {
  std::vector<std::pair<std::uint32_t, std::int32_t>> race(
      static_cast<std::size_t>(options.experts));
  for (std::int32_t e = 0; e < options.experts; ++e)
    race[static_cast<std::size_t>(e)] = {
        detail::forced_key(options.load, options.experts, options.layer, token, e), e};
  std::partial_sort(race.begin(), race.begin() + options.topk, race.end());
  for (int r = 0; r < options.topk; ++r) chosen[r] = race[static_cast<std::size_t>(r)].second;
}

}  // namespace

template <class S>
void RouterSelect::reference(const Operands<Pointers<S>>& o) const {
  using A = execution::Accumulation<S>;
  const std::int64_t experts = options.experts;
  const std::int32_t routed = o.cu_seqlens[starts - 1];
  execution::host_for(tokens, kTokens, [&](std::int64_t begin, std::int64_t end) {
    std::vector<A> preference(static_cast<std::size_t>(experts));
    std::vector<A> group_score(static_cast<std::size_t>(options.groups));
    for (std::int64_t t = begin; t < end; ++t) {
      std::int32_t* chosen = o.indices + t * options.topk;
      if (options.rows.token(t) >= routed) {
        std::fill_n(chosen, options.topk, -1);
        continue;
      }
      if (options.load != ForcedLoad::none) {
        draw_experts(options, options.rows.token(t), chosen);
        continue;
      }
      detail::router_scores(options, o.logits + t * experts, preference.data());
      for (std::int64_t e = 0; o.bias && e < experts; ++e) preference[e] += o.bias[e];
      if (options.groups > 1) limit_groups(options, preference.data(), group_score);
      for (int r = 0; r < options.topk; ++r) {
        const std::int64_t best = argmax(experts, preference.data());
        chosen[r] = static_cast<std::int32_t>(best);
        preference[best] = -std::numeric_limits<A>::infinity();
      }
    }
  });
  if (weights)
    RouterWeights{.tokens = tokens, .options = options, .storage = storage}.reference<S>(
        {.logits = o.logits, .indices = o.indices, .weights = o.weights});
}

STOWAGE_REFERENCES(RouterSelect)

}  // namespace stowage::kernels
