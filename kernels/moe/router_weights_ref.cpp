#include <algorithm>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/moe/router.hpp"
#include "kernels/moe/scores.hpp"

namespace stowage::kernels {

namespace {

constexpr std::int64_t kTokens = 32;

// What the weights of a token are divided by: the sum of its chosen scores, or 1.
template <class A>
A chosen_sum(const RouterOptions& options, const A* scores, const std::int32_t* chosen) {
  if (!options.normalise) return A{1};
  A sum = static_cast<A>(detail::kScoreFloor);
  for (int r = 0; r < options.topk; ++r) sum += scores[chosen[r]];
  return sum;
}

// dscores (E) += the gradient of a token's weights w_r = scaling s_r / sum.
template <class A>
void add_weight_gradient(const RouterOptions& options, const A* scores, const std::int32_t* chosen,
                         const A* weights, const A* dweights_rows, const std::int32_t* rows,
                         A* dscores) {
  const A sum = chosen_sum(options, scores, chosen);
  A projection{0};  // through the sum, which every weight shares
  for (int r = 0; options.normalise && r < options.topk; ++r)
    projection += dweights_rows[rows[r]] * weights[r];
  for (int r = 0; r < options.topk; ++r)
    dscores[chosen[r]] +=
        (static_cast<A>(options.scaling) * dweights_rows[rows[r]] - projection) / sum;
}

// dscores (E) += the gradient of the aux loss, linear in the token's distribution p = scores / sum:
// slope[e] = d aux / d p[e].
template <class A>
void add_aux_gradient(const RouterOptions& options, const A* scores, const A* slope, A* dscores) {
  const A sum = detail::score_sum(options, scores);
  A projection{0};
  for (std::int64_t e = 0; e < options.experts; ++e) projection += slope[e] * scores[e];
  for (std::int64_t e = 0; e < options.experts; ++e)
    dscores[e] += (slope[e] - projection / sum) / sum;
}

// dlogits (E) from dscores, through the sigmoid or the softmax.
template <class A>
void logit_gradient(const RouterOptions& options, const A* scores, const A* dscores, A* dlogits) {
  A projection{0};
  for (std::int64_t e = 0; !options.sigmoid && e < options.experts; ++e)
    projection += scores[e] * dscores[e];
  for (std::int64_t e = 0; e < options.experts; ++e)
    dlogits[e] = options.sigmoid ? dscores[e] * scores[e] * (A{1} - scores[e])
                                 : scores[e] * (dscores[e] - projection);
}

// dlogits (E) += the gradient of z_slope * logsumexp(logits)^2.
template <class A>
void add_z_gradient(const RouterOptions& options, const A* logits, A z_slope, A* dlogits) {
  const A lse = detail::logsumexp(options.experts, logits);
  for (std::int64_t e = 0; e < options.experts; ++e)
    dlogits[e] += z_slope * 2 * lse * exponential(logits[e] - lse);
}

// slope[e] = aux_scale aux_coeff E f_e / N with f_e = count_e / (N R); see router_losses.
template <class A>
std::vector<A> aux_slopes(const RouterOptions& options, const std::int32_t* offsets,
                          std::int32_t routed) {
  std::vector<A> slope(static_cast<std::size_t>(options.experts));
  const double per_row = options.aux_scale * options.aux_coeff * options.experts /
                         (static_cast<double>(routed) * routed * options.topk);
  for (int e = 0; e < options.experts; ++e)
    slope[e] = static_cast<A>(per_row * (offsets[e + 1] - offsets[e]));
  return slope;
}

}  // namespace

template <class S>
void RouterWeights::reference(const Operands<Pointers<S>>& o) const {
  using A = execution::Accumulation<S>;
  execution::host_for(tokens, kTokens, [&](std::int64_t begin, std::int64_t end) {
    std::vector<A> scores(static_cast<std::size_t>(options.experts));
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int32_t* chosen = o.indices + t * options.topk;
      A* weight = o.weights + t * options.topk;
      if (chosen[0] < 0) {
        std::fill_n(weight, options.topk, A{0});
        continue;
      }
      detail::router_scores(options, o.logits + t * options.experts, scores.data());
      const A scale = static_cast<A>(options.scaling) / chosen_sum(options, scores.data(), chosen);
      for (int r = 0; r < options.topk; ++r) weight[r] = scores[chosen[r]] * scale;
    }
  });
}

template <class S>
void RouterBackward::reference(const Operands<Pointers<S>>& o) const {
  using A = execution::Accumulation<S>;
  const std::int64_t experts = options.experts, topk = options.topk;
  const std::int32_t routed = o.cu_seqlens[starts - 1];
  std::vector<A> slope;
  if (options.aux_coeff != 0 && routed > 0) slope = aux_slopes<A>(options, o.offsets, routed);
  const A z_slope = static_cast<A>(options.aux_scale * options.z_coeff / std::max(routed, 1));
  execution::host_for(tokens, kTokens, [&](std::int64_t begin, std::int64_t end) {
    std::vector<A> scores(static_cast<std::size_t>(experts)), dscores(scores.size());
    for (std::int64_t t = begin; t < end; ++t) {
      const A* logit = o.logits + t * experts;
      A* dlogit = o.dlogits + t * experts;
      if (options.rows.token(t) >= routed) {
        std::fill_n(dlogit, experts, A{0});
        continue;
      }
      detail::router_scores(options, logit, scores.data());
      std::ranges::fill(dscores, A{0});
      add_weight_gradient(options, scores.data(), o.indices + t * topk, o.weights + t * topk,
                          o.dweights_rows, o.token_row + t * topk, dscores.data());
      if (!slope.empty()) add_aux_gradient(options, scores.data(), slope.data(), dscores.data());
      logit_gradient(options, scores.data(), dscores.data(), dlogit);
      if (options.z_coeff != 0) add_z_gradient(options, logit, z_slope, dlogit);
    }
  });
}

STOWAGE_REFERENCES(RouterWeights)
STOWAGE_REFERENCES(RouterBackward)

}  // namespace stowage::kernels
