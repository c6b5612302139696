#include <algorithm>
#include <vector>

#include "kernels/moe/router.hpp"
#include "kernels/moe/scores.hpp"
#include "kernels/partials.hpp"

namespace stowage::kernels {

template <class A>
void router_losses_ref(std::int64_t tokens, const RouterOptions& options, const A* logits,
                       const std::int32_t* offsets, const std::int32_t* routed, A* losses,
                       bool accumulate) {
  const std::int64_t experts = options.experts;
  const std::int64_t counted = options.rows.before(*routed, tokens);
  const auto width = static_cast<std::size_t>(experts + 1);  // sums of p_e, then of lse^2
  std::vector<A> sums(width);
  std::vector<A> partials(static_cast<std::size_t>(partial_count(counted)) * width);
  sum_over_rows(counted, experts + 1, partials.data(), sums.data(), false,
                [=](std::int64_t begin, std::int64_t end, A* partial) {
                  std::vector<A> scores(static_cast<std::size_t>(experts));
                  for (std::int64_t t = begin; t < end; ++t) {
                    const A* logit = logits + t * experts;
                    detail::router_scores(options, logit, scores.data());
                    const A sum = detail::score_sum(options, scores.data());
                    for (std::int64_t e = 0; e < experts; ++e) partial[e] += scores[e] / sum;
                    const A lse = detail::logsumexp(experts, logit);
                    partial[experts] += lse * lse;
                  }
                });

  A aux{0}, z{0};
  if (counted > 0) {
    const auto n = static_cast<double>(*routed);
    for (std::int64_t e = 0; e < experts; ++e)
      aux += static_cast<A>(offsets[e + 1] - offsets[e]) * sums[e];
    aux *= static_cast<A>(options.aux_scale * options.aux_coeff * options.experts /
                          (n * n * options.topk));
    z = sums.back() * static_cast<A>(options.aux_scale * options.z_coeff / n);
  }
  losses[0] = aux + (accumulate ? losses[0] : A{0});
  losses[1] = z + (accumulate ? losses[1] : A{0});
}

template void router_losses_ref(std::int64_t, const RouterOptions&, const float*,
                                const std::int32_t*, const std::int32_t*, float*, bool);
template void router_losses_ref(std::int64_t, const RouterOptions&, const double*,
                                const std::int32_t*, const std::int32_t*, double*, bool);

}  // namespace stowage::kernels
