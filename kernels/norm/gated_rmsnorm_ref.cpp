#include <cmath>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/magnitude.hpp"
#include "kernels/norm/gated_rmsnorm.hpp"
#include "kernels/partials.hpp"
#include "kernels/reduce.hpp"
#include "kernels/silu.hpp"

namespace stowage::kernels {

using execution::Accumulation;

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
void GatedRmsnormForward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  constexpr std::int64_t kRows = 16;
  const std::int64_t size = width / groups;
  execution::host_for(rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    Group<A> group(size, shares.pointers(rows, o.squares));
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t first = 0; first < width; first += size) {
        group.load(o.y + i * width + first, o.z.row(i) + first, eps, i);
        S* to = o.out + i * width + first;
        for (std::int64_t j = 0; j < size; ++j)
          to[j] = static_cast<S>(group.at(group.gated, j) * group.rstd *
                                 static_cast<A>(o.w[first + j]));
      }
  });
  if (o.amax) *o.amax = largest_magnitude(o.out, rows * width);
}

template <class S>
void GatedRmsnormBackward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const std::int64_t size = width / groups;
  sum_over_rows(rows, width, o.workspace, o.dw, accumulate,
                [&](std::int64_t begin, std::int64_t end, A* partial) {
                  Group<A> group(size, shares.pointers(rows, o.squares, o.projections));
                  for (std::int64_t i = begin; i < end; ++i)
                    for (std::int64_t first = 0; first < width; first += size) {
                      const std::int64_t at = i * width + first;
                      const S* z = o.z.row(i) + first;
                      group.load(o.y + at, z, eps, i);
                      backward_group(group, i, o.dout + at, o.y + at, z, o.w + first, o.dy + at,
                                     o.dz.row(i) + first, partial + first);
                    }
                });
  if (!o.amax) return;
  *o.amax = 0;
  for (std::int64_t i = 0; i < rows; ++i)
    add_largest(*o.amax, largest_magnitude(o.dz.row(i), width));
}

STOWAGE_REFERENCES(GatedRmsnormForward)
STOWAGE_REFERENCES(GatedRmsnormBackward)

}  // namespace stowage::kernels
