#include <algorithm>
#include <cmath>

#include "execution/host_loops.hpp"
#include "kernels/norm/head_rmsnorm.hpp"
#include "kernels/partials.hpp"
#include "kernels/reduce.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

template <class S, class A = Accumulation<S>>
A rstd_of(const S* x, std::int64_t width, double eps) {
  const A squares = ordered_sum<A>(
      width, [=](std::int64_t j) { return static_cast<A>(x[j]) * static_cast<A>(x[j]); });
  return A{1} / std::sqrt(squares / static_cast<A>(width) + static_cast<A>(eps));
}

template <class S, class A>
void forward_head(const S* x, const S* w, A offset, S* y, std::int64_t width, double eps) {
  const A rstd = rstd_of(x, width, eps);
  for (std::int64_t j = 0; j < width; ++j)
    y[j] = static_cast<S>(static_cast<A>(x[j]) * rstd * (static_cast<A>(w[j]) + offset));
}

template <class S, class A>
void backward_head(const S* dy, const S* x, const S* w, A offset, S* dx, A* dw, std::int64_t width,
                   double eps) {
  const A rstd = rstd_of(x, width, eps);
  const A projection = ordered_sum<A>(width, [=](std::int64_t j) {
    return static_cast<A>(dy[j]) * (static_cast<A>(w[j]) + offset) * static_cast<A>(x[j]);
  });
  const A mean = projection * rstd / static_cast<A>(width);  // mean(g * h)
  for (std::int64_t j = 0; j < width; ++j) {
    const A h = static_cast<A>(x[j]) * rstd, gradient = static_cast<A>(dy[j]);
    dw[j] += gradient * h;
    dx[j] = static_cast<S>(rstd * (gradient * (static_cast<A>(w[j]) + offset) - h * mean));
  }
}

}  // namespace

template <class S>
void HeadRmsnormForward::reference(const Operands<Pointers<S>>& o) const {
  constexpr std::int64_t kTokens = 16;
  const std::int64_t dim = sizes.head_dim;
  const Accumulation<S> offset = zero_centred ? 1 : 0;
  execution::host_for(tokens, kTokens, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin * sizes.all(); row < end * sizes.all(); ++row) {
      const std::int64_t head = row % sizes.all();
      const S* from = o.in + row * dim;
      S* to = o.out + row * dim;
      if (head < sizes.heads + sizes.kv_heads)
        forward_head(from, head < sizes.heads ? o.q_weight : o.k_weight, offset, to, dim, eps);
      else if (to != from)
        std::copy_n(from, dim, to);
    }
  });
}

template <class S>
void HeadRmsnormBackward::reference(const Operands<Pointers<S>>& o) const {
  const std::int64_t dim = sizes.head_dim;
  const Accumulation<S> offset = zero_centred ? 1 : 0;
  const auto heads = [&](std::int64_t first, std::int64_t count, const S* w, Accumulation<S>* dw) {
    sum_over_rows(
        tokens * count, dim, o.workspace, dw, accumulate,
        [&](std::int64_t begin, std::int64_t end, Accumulation<S>* partial) {
          for (std::int64_t row = begin; row < end; ++row) {
            const std::int64_t at = (row / count * sizes.all() + first + row % count) * dim;
            backward_head(o.dout + at, o.in + at, w, offset, o.din + at, partial, dim, eps);
          }
        });
  };
  heads(0, sizes.heads, o.q_weight, o.dq_weight);
  heads(sizes.heads, sizes.kv_heads, o.k_weight, o.dk_weight);
  if (o.din == o.dout) return;
  const std::int64_t values = sizes.kv_heads * dim;
  for (std::int64_t t = 1; t <= tokens; ++t)
    std::copy_n(o.dout + t * sizes.width() - values, values, o.din + t * sizes.width() - values);
}

STOWAGE_REFERENCES(HeadRmsnormForward)
STOWAGE_REFERENCES(HeadRmsnormBackward)

}  // namespace stowage::kernels
