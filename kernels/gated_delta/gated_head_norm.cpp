#include "kernels/gated_delta/gated_head_norm.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/cost.hpp"
#include "kernels/gated_delta/gated_head_norm_launch.hpp"
#include "kernels/launch.hpp"
#include "kernels/norm/norm_launch.hpp"
#include "kernels/partials.hpp"
#include "kernels/reduce.hpp"
#include "kernels/silu.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using gated_delta::HeadNorm;

namespace {

template <class S, class Op, class O>
HeadNorm<S> head_norm(const Op& op, const O& o) {
  return {.tokens = op.tokens,
          .heads = static_cast<int>(op.heads),
          .head_dim = static_cast<int>(op.head_dim),
          .y = o.y,
          .z = o.z.data,
          .z_stride = o.z.stride,
          .w = o.w,
          .eps = static_cast<float>(op.eps)};
}

template <class A, class S>
A rstd_of(const S* y, std::int64_t width, double eps) {
  const A squares = ordered_sum<A>(
      width, [=](std::int64_t j) { return static_cast<A>(y[j]) * static_cast<A>(y[j]); });
  return A{1} / std::sqrt(squares / static_cast<A>(width) + static_cast<A>(eps));
}

}  // namespace

template <class S>
void GatedHeadNormForward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  constexpr std::int64_t kRows = 64;
  execution::host_for(tokens * heads, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const S* y = o.y + row * head_dim;
      const S* z = o.z.row(row / heads) + row % heads * head_dim;
      const A rstd = rstd_of<A>(y, head_dim, eps);
      for (std::int64_t j = 0; j < head_dim; ++j)
        o.out[row * head_dim + j] = static_cast<S>(
            static_cast<A>(y[j]) * rstd * static_cast<A>(o.w[j]) * silu(static_cast<A>(z[j])));
    }
  });
}

template <class S>
void GatedHeadNormBackward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const auto rows = [&](std::int64_t begin, std::int64_t end, A* partial) {
    std::vector<A> g(static_cast<std::size_t>(head_dim)), h = g;
    for (std::int64_t row = begin; row < end; ++row) {
      const S* y = o.y + row * head_dim;
      const S* dout = o.dout + row * head_dim;
      const S* z = o.z.row(row / heads) + row % heads * head_dim;
      S* dz = o.dz.row(row / heads) + row % heads * head_dim;
      const A rstd = rstd_of<A>(y, head_dim, eps);
      for (std::int64_t j = 0; j < head_dim; ++j) {
        const A zj = static_cast<A>(z[j]), gate = sigmoid(zj), w = static_cast<A>(o.w[j]);
        const A gradient = static_cast<A>(dout[j]);
        h[j] = static_cast<A>(y[j]) * rstd;
        g[j] = gradient * zj * gate * w;
        partial[j] += gradient * zj * gate * h[j];
        dz[j] = static_cast<S>(gradient * h[j] * w * silu_derivative(zj, gate));
      }
      const A mean = ordered_sum<A>(head_dim, [&](std::int64_t j) { return g[j] * h[j]; }) /
                     static_cast<A>(head_dim);
      for (std::int64_t j = 0; j < head_dim; ++j)
        o.dy[row * head_dim + j] = static_cast<S>(rstd * (g[j] - h[j] * mean));
    }
  };
  sum_over_rows(tokens * heads, head_dim, o.workspace, o.dw, accumulate, rows);
}

template <class S>
int GatedHeadNormForward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  HeadNorm<S> args = head_norm<S>(*this, o);
  args.out = o.out;
  return gated_delta::launch_head_norm(args, stream);
}

template <class S>
int GatedHeadNormBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  HeadNorm<S> args = head_norm<S>(*this, o);
  args.dout = o.dout;
  args.dy = o.dy;
  args.dz = o.dz.data;
  args.dz_stride = o.dz.stride;
  args.dw = o.dw;
  args.partials = o.workspace;
  args.accumulate = accumulate;
  return gated_delta::launch_head_norm(args, stream);
}

std::size_t GatedHeadNormBackward::workspace_bytes() const {
  const std::int64_t partials = std::max(partial_count(tokens * heads), norm::kPartials);
  return static_cast<std::size_t>(partials * head_dim) *
         execution::size_bytes(execution::accumulation(storage));
}

Cost GatedHeadNormForward::cost() const {
  const std::int64_t elements = tokens * heads * head_dim;
  return {8.0 * static_cast<double>(elements), bytes(3 * elements, storage)};
}

Cost GatedHeadNormBackward::cost() const {
  const std::int64_t elements = tokens * heads * head_dim;
  return {20.0 * static_cast<double>(elements), bytes(5 * elements, storage)};
}

STOWAGE_REFERENCES(GatedHeadNormForward)
STOWAGE_REFERENCES(GatedHeadNormBackward)
STOWAGE_OPERATOR_RUN(GatedHeadNormForward)
STOWAGE_OPERATOR_RUN(GatedHeadNormBackward)

}  // namespace stowage::kernels
