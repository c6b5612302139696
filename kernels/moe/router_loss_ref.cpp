#include <algorithm>
#include <vector>

#include "kernels/moe/router.hpp"
#include "kernels/moe/scores.hpp"
#include "kernels/partials.hpp"

namespace stowage::kernels {

template <class S>
void RouterLosses::reference(const Operands<Pointers<S>>& o) const {
  using A = execution::Accumulation<S>;
  const std::int32_t routed = o.cu_seqlens[starts - 1];
  const std::int64_t experts = options.experts;
  const std::int64_t counted = options.rows.before(routed, tokens);
  const auto width = static_cast<std::size_t>(experts + 1);  // sums of p_e, then of lse^2
  std::vector<A> sums(width);
  std::vector<A> partials(static_cast<std::size_t>(partial_count(counted)) * width);
  sum_over_rows(counted, experts + 1, partials.data(), sums.data(), false,
                [&](std::int64_t begin, std::int64_t end, A* partial) {
                  std::vector<A> scores(static_cast<std::size_t>(experts));
                  for (std::int64_t t = begin; t < end; ++t) {
                    const A* logit = o.logits + t * experts;
                    detail::router_scores(options, logit, scores.data());
                    const A sum = detail::score_sum(options, scores.data());
                    for (std::int64_t e = 0; e < experts; ++e) partial[e] += scores[e] / sum;
                    const A lse = detail::logsumexp(experts, logit);
                    partial[experts] += lse * lse;
                  }
                });

  A aux{0}, z{0};
  if (counted > 0) {
    const auto n = static_cast<double>(routed);
    for (std::int64_t e = 0; e < experts; ++e)
      aux += static_cast<A>(o.offsets[e + 1] - o.offsets[e]) * sums[e];
    aux *= static_cast<A>(options.aux_scale * options.aux_coeff * options.experts /
                          (n * n * options.topk));
    z = sums.back() * static_cast<A>(options.aux_scale * options.z_coeff / n);
  }
  o.losses[0] = aux + (accumulate ? o.losses[0] : A{0});
  o.losses[1] = z + (accumulate ? o.losses[1] : A{0});
}

STOWAGE_REFERENCES(RouterLosses)

}  // namespace stowage::kernels
