#include <algorithm>
#include <cmath>

#include "execution/host_loops.hpp"
#include "kernels/norm/head_rmsnorm.hpp"
#include "kernels/partials.hpp"
#include "kernels/reduce.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Bf16;

namespace {

template <class S, class A = Accumulation<S>>
A rstd_of(const S* x, std::int64_t width, double eps) {
  const A squares = ordered_sum<A>(
      width, [=](std::int64_t j) { return static_cast<A>(x[j]) * static_cast<A>(x[j]); });
  return A{1} / std::sqrt(squares / static_cast<A>(width) + static_cast<A>(eps));
}

template <class S>
void forward_head(const S* x, const S* w, S* y, std::int64_t width, double eps) {
  using A = Accumulation<S>;
  const A rstd = rstd_of(x, width, eps);
  for (std::int64_t j = 0; j < width; ++j)
    y[j] = static_cast<S>(static_cast<A>(x[j]) * rstd * static_cast<A>(w[j]));
}

template <class S, class A>
void backward_head(const S* dy, const S* x, const S* w, S* dx, A* dw, std::int64_t width,
                   double eps) {
  const A rstd = rstd_of(x, width, eps);
  const A projection = ordered_sum<A>(width, [=](std::int64_t j) {
    return static_cast<A>(dy[j]) * static_cast<A>(w[j]) * static_cast<A>(x[j]);
  });
  const A mean = projection * rstd / static_cast<A>(width);  // mean(g * h)
  for (std::int64_t j = 0; j < width; ++j) {
    const A h = static_cast<A>(x[j]) * rstd, gradient = static_cast<A>(dy[j]);
    dw[j] += gradient * h;
    dx[j] = static_cast<S>(rstd * (gradient * static_cast<A>(w[j]) - h * mean));
  }
}

}  // namespace

template <class S>
void head_rmsnorm_forward_ref(std::int64_t tokens, const S* in, const S* q_weight,
                              const S* k_weight, S* out, const HeadSizes& sizes, double eps) {
  constexpr std::int64_t kTokens = 16;
  const std::int64_t dim = sizes.head_dim;
  execution::host_for(tokens, kTokens, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin * sizes.all(); row < end * sizes.all(); ++row) {
      const std::int64_t head = row % sizes.all();
      const S* from = in + row * dim;
      S* to = out + row * dim;
      if (head < sizes.heads + sizes.kv_heads)
        forward_head(from, head < sizes.heads ? q_weight : k_weight, to, dim, eps);
      else if (to != from)
        std::copy_n(from, dim, to);
    }
  });
}

template <class S>
void head_rmsnorm_backward_ref(std::int64_t tokens, const S* dout, const S* in, const S* q_weight,
                               const S* k_weight, S* din, Accumulation<S>* dq_weight,
                               Accumulation<S>* dk_weight, Accumulation<S>* workspace,
                               const HeadSizes& sizes, double eps, bool accumulate) {
  const std::int64_t dim = sizes.head_dim;
  const auto heads = [&](std::int64_t first, std::int64_t count, const S* w, Accumulation<S>* dw) {
    sum_over_rows(tokens * count, dim, workspace, dw, accumulate,
                  [=](std::int64_t begin, std::int64_t end, Accumulation<S>* partial) {
                    for (std::int64_t row = begin; row < end; ++row) {
                      const std::int64_t at =
                          (row / count * sizes.all() + first + row % count) * dim;
                      backward_head(dout + at, in + at, w, din + at, partial, dim, eps);
                    }
                  });
  };
  heads(0, sizes.heads, q_weight, dq_weight);
  heads(sizes.heads, sizes.kv_heads, k_weight, dk_weight);
  if (din == dout) return;
  const std::int64_t values = sizes.kv_heads * dim;
  for (std::int64_t t = 1; t <= tokens; ++t)
    std::copy_n(dout + t * sizes.width() - values, values, din + t * sizes.width() - values);
}

#define STOWAGE_INSTANTIATE(S)                                                                  \
  template void head_rmsnorm_forward_ref(std::int64_t, const S*, const S*, const S*, S*,        \
                                         const HeadSizes&, double);                             \
  template void head_rmsnorm_backward_ref(std::int64_t, const S*, const S*, const S*, const S*, \
                                          S*, Accumulation<S>*, Accumulation<S>*,               \
                                          Accumulation<S>*, const HeadSizes&, double, bool);
STOWAGE_INSTANTIATE(double)
STOWAGE_INSTANTIATE(float)
STOWAGE_INSTANTIATE(Bf16)
#undef STOWAGE_INSTANTIATE

}  // namespace stowage::kernels
