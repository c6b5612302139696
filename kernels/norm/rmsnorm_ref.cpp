#include <cmath>

#include "execution/host_loops.hpp"
#include "kernels/magnitude.hpp"
#include "kernels/norm/rmsnorm.hpp"
#include "kernels/partials.hpp"
#include "kernels/reduce.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

// sum = x + delta as rounded to storage; x itself where there is neither.
template <class S>
const S* residual_sum(std::int64_t width, const S* x, const S* delta, S* sum) {
  if (sum == nullptr) return x;
  using A = Accumulation<S>;
  for (std::int64_t j = 0; j < width; ++j)
    sum[j] = delta ? static_cast<S>(static_cast<A>(x[j]) + static_cast<A>(delta[j])) : x[j];
  return sum;
}

// One row of dx, and its share of dw.
template <class S, class A>
void backward_row(std::int64_t width, const S* dy, const S* x, const S* w, A offset, A rstd,
                  const S* dresidual, S* dx, A* dw) {
  const A projection = ordered_sum<A>(width, [=](std::int64_t j) {
    return static_cast<A>(dy[j]) * (static_cast<A>(w[j]) + offset) * static_cast<A>(x[j]);
  });
  const A mean = projection * rstd / static_cast<A>(width);  // mean(g * h)
  for (std::int64_t j = 0; j < width; ++j) {
    const A h = static_cast<A>(x[j]) * rstd;
    const A gradient = static_cast<A>(dy[j]);
    const A residual = dresidual ? static_cast<A>(dresidual[j]) : A{0};
    dw[j] += gradient * h;
    dx[j] =
        static_cast<S>(residual + rstd * (gradient * (static_cast<A>(w[j]) + offset) - h * mean));
  }
}

}  // namespace

template <class S>
void AddRmsnormForward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  constexpr std::int64_t kRows = 16;
  const A offset = zero_centred ? 1 : 0;
  execution::host_for(rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t at = i * width;
      const S* row = residual_sum(width, o.x + at, o.delta ? o.delta + at : nullptr,
                                  o.sum ? o.sum + at : nullptr);
      const A squares = ordered_sum<A>(
          width, [=](std::int64_t j) { return static_cast<A>(row[j]) * static_cast<A>(row[j]); });
      const A scale = A{1} / std::sqrt(squares / static_cast<A>(width) + static_cast<A>(eps));
      for (std::int64_t j = 0; j < width; ++j)
        o.y[at + j] =
            static_cast<S>(static_cast<A>(row[j]) * scale * (static_cast<A>(o.w[j]) + offset));
      o.rstd[i] = scale;
    }
  });
  if (o.amax) *o.amax = largest_magnitude(o.y, rows * width);
}

template <class S>
void RmsnormBackward::reference(const Operands<Pointers<S>>& o) const {
  const Accumulation<S> offset = zero_centred ? 1 : 0;
  sum_over_rows(rows, width, o.workspace, o.dw, accumulate,
                [&](std::int64_t begin, std::int64_t end, Accumulation<S>* partial) {
                  for (std::int64_t i = begin; i < end; ++i) {
                    const std::int64_t at = i * width;
                    backward_row(width, o.dy + at, o.x + at, o.w, offset, o.rstd[i],
                                 o.dresidual ? o.dresidual + at : nullptr, o.dx + at, partial);
                  }
                });
  if (o.amax) *o.amax = largest_magnitude(o.dx, rows * width);
}

STOWAGE_REFERENCES(AddRmsnormForward)
STOWAGE_REFERENCES(RmsnormBackward)

}  // namespace stowage::kernels
