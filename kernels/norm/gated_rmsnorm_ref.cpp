#include <cmath>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/norm/gated_rmsnorm.hpp"
#include "kernels/partials.hpp"
#include "kernels/reduce.hpp"
#include "kernels/silu.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Bf16;

namespace {

// The part of one row that one mean is taken over, in the accumulation type.
template <class A>
struct Group {
  Group(std::int64_t size, const GroupSharePointers<A>& parts)
      : count(size),
        shares(parts),
        gate(static_cast<std::size_t>(size)),
        gated(static_cast<std::size_t>(size)) {}

  // gate = sigmoid(z), gated = y silu(z), rstd of gated.
  template <class S>
  void load(const S* y, const S* z, double eps, std::int64_t row) {
    for (std::int64_t j = 0; j < count; ++j) at(gate, j) = sigmoid(static_cast<A>(z[j]));
    for (std::int64_t j = 0; j < count; ++j)
      at(gated, j) = static_cast<A>(y[j]) * static_cast<A>(z[j]) * at(gate, j);
    const auto square = [this](std::int64_t j) { return at(gated, j) * at(gated, j); };
    const A squares =
        shares.shared() ? shares.sum(shares.squares, row) : ordered_sum<A>(count, square);
    rstd = A{1} / std::sqrt(squares / size() + static_cast<A>(eps));
  }
  // Columns of all parts.
  A size() const { return static_cast<A>(count * shares.count); }

  static A& at(std::vector<A>& values, std::int64_t j) { return values[j]; }

  std::int64_t count;
  GroupSharePointers<A> shares;
  std::vector<A> gate, gated;
  A rstd{};
};

// dy, dz and the share of dw of one group of one row.
template <class S, class A>
void backward_group(Group<A>& group, std::int64_t row, const S* dout, const S* y, const S* z,
                    const S* w, S* dy, S* dz, A* dw) {
  const A rstd = group.rstd;
  const auto product = [&](std::int64_t j) {
    return static_cast<A>(dout[j]) * static_cast<A>(w[j]) * group.at(group.gated, j);
  };
  const A projection = group.shares.shared() ? group.shares.sum(group.shares.projections, row)
                                             : ordered_sum<A>(group.count, product);
  const A mean = projection * rstd / group.size();
  for (std::int64_t j = 0; j < group.count; ++j) {
    const A h = group.at(group.gated, j) * rstd;
    const A dgated = rstd * (static_cast<A>(dout[j]) * static_cast<A>(w[j]) - h * mean);
    const A zj = static_cast<A>(z[j]), gate = group.at(group.gate, j);
    dw[j] += static_cast<A>(dout[j]) * h;
    dz[j] = static_cast<S>(dgated * static_cast<A>(y[j]) * silu_derivative(zj, gate));
    dy[j] = static_cast<S>(dgated * zj * gate);
  }
}

}  // namespace

template <class S>
void gated_rmsnorm_forward_ref(const S* y, Matrix<const S> z, const S* w, S* out,
                               std::int64_t groups, double eps,
                               const GroupSharePointers<Accumulation<S>>& shares) {
  using A = Accumulation<S>;
  constexpr std::int64_t kRows = 16;
  const std::int64_t width = z.columns, size = width / groups;
  execution::host_for(z.rows, kRows, [=](std::int64_t begin, std::int64_t end) {
    Group<A> group(size, shares);
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t first = 0; first < width; first += size) {
        group.load(y + i * width + first, z.row(i) + first, eps, i);
        S* to = out + i * width + first;
        for (std::int64_t j = 0; j < size; ++j)
          to[j] =
              static_cast<S>(group.at(group.gated, j) * group.rstd * static_cast<A>(w[first + j]));
      }
  });
}

template <class S>
void gated_rmsnorm_backward_ref(const S* dout, const S* y, Matrix<const S> z, const S* w, S* dy,
                                Matrix<S> dz, Accumulation<S>* dw, Accumulation<S>* workspace,
                                std::int64_t groups, double eps, bool accumulate,
                                const GroupSharePointers<Accumulation<S>>& shares) {
  using A = Accumulation<S>;
  const std::int64_t width = z.columns, size = width / groups;
  sum_over_rows(z.rows, width, workspace, dw, accumulate,
                [=](std::int64_t begin, std::int64_t end, A* partial) {
                  Group<A> group(size, shares);
                  for (std::int64_t i = begin; i < end; ++i)
                    for (std::int64_t first = 0; first < width; first += size) {
                      const std::int64_t at = i * width + first;
                      const S* zi = z.row(i) + first;
                      group.load(y + at, zi, eps, i);
                      backward_group(group, i, dout + at, y + at, zi, w + first, dy + at,
                                     dz.row(i) + first, partial + first);
                    }
                });
}

#define STOWAGE_INSTANTIATE(S)                                                                   \
  template void gated_rmsnorm_forward_ref(const S*, Matrix<const S>, const S*, S*, std::int64_t, \
                                          double, const GroupSharePointers<Accumulation<S>>&);   \
  template void gated_rmsnorm_backward_ref(                                                      \
      const S*, const S*, Matrix<const S>, const S*, S*, Matrix<S>, Accumulation<S>*,            \
      Accumulation<S>*, std::int64_t, double, bool, const GroupSharePointers<Accumulation<S>>&);
STOWAGE_INSTANTIATE(double)
STOWAGE_INSTANTIATE(float)
STOWAGE_INSTANTIATE(Bf16)
#undef STOWAGE_INSTANTIATE

}  // namespace stowage::kernels
