#include <algorithm>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/magnitude.hpp"
#include "kernels/reduce.hpp"
#include "kernels/silu.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

constexpr std::int64_t kRows = 16;

std::int64_t valid_count(std::int64_t rows, const std::int32_t* valid_rows) {
  return valid_rows ? std::min<std::int64_t>(rows, *valid_rows) : rows;
}

// y = weight * act(x) for one row.
template <class S, class A>
void forward_row(Activation kind, std::int64_t columns, const S* x, A weight, S* y) {
  if (kind == Activation::squared_relu) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const A positive = std::max(static_cast<A>(x[j]), A{0});
      y[j] = static_cast<S>(weight * positive * positive);
    }
  } else {
    for (std::int64_t j = 0; j < columns; ++j)
      y[j] = static_cast<S>(weight * silu(static_cast<A>(x[j])) * static_cast<A>(x[columns + j]));
  }
}

// dx for one row; products[j] = dy act(x).
template <class S, class A>
void backward_row(Activation kind, std::int64_t columns, const S* dy, const S* x, A weight, S* dx,
                  A* products) {
  if (kind == Activation::squared_relu) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const A positive = std::max(static_cast<A>(x[j]), A{0});
      const A gradient = static_cast<A>(dy[j]);
      dx[j] = static_cast<S>(weight * gradient * 2 * positive);
      products[j] = gradient * positive * positive;
    }
  } else {
    for (std::int64_t j = 0; j < columns; ++j) products[j] = sigmoid(static_cast<A>(x[j]));
    for (std::int64_t j = 0; j < columns; ++j) {
      const A gate = static_cast<A>(x[j]), up = static_cast<A>(x[columns + j]);
      const A share = products[j];
      const A gradient = static_cast<A>(dy[j]);
      dx[j] = static_cast<S>(weight * gradient * up * silu_derivative(gate, share));
      dx[columns + j] = static_cast<S>(weight * gradient * gate * share);
      products[j] = gradient * gate * share * up;
    }
  }
}

}  // namespace

template <class S>
void ActivationForward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const std::int64_t width = activation_width(kind, columns);
  execution::host_for(valid_count(rows, valid.of(o.valid_rows)), kRows,
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t i = begin; i < end; ++i)
                          forward_row(kind, columns, o.x + i * width,
                                      o.row_weight ? o.row_weight[i] : A{1}, o.y + i * columns);
                      });
}

template <class S>
void ActivationBackward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const std::int64_t width = activation_width(kind, columns);
  execution::host_for(
      valid_count(rows, valid.of(o.valid_rows)), kRows, [&](std::int64_t begin, std::int64_t end) {
        std::vector<A> products(static_cast<std::size_t>(columns));
        for (std::int64_t i = begin; i < end; ++i) {
          backward_row(kind, columns, o.dy + i * columns, o.x + i * width,
                       o.row_weight ? o.row_weight[i] : A{1}, o.dx + i * width, products.data());
          if (o.drow_weight)
            o.drow_weight[i] =
                ordered_sum<A>(columns, [p = products.data()](std::int64_t j) { return p[j]; });
        }
      });
  if (o.amax) *o.amax = largest_magnitude(o.dx, rows * width);
}

STOWAGE_REFERENCES(ActivationForward)
STOWAGE_REFERENCES(ActivationBackward)

}  // namespace stowage::kernels
