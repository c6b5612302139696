#include <cmath>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/blas.hpp"
#include "kernels/optimizer/newton_schulz_launch.hpp"

namespace stowage::kernels {
namespace {

using execution::Accumulation;

/// Rows of a task.
constexpr std::int64_t kRows = 16;

template <class S>
void normalise(const S* x, S* to, double* squares, std::int64_t elements) {
  const std::int64_t chunks = (elements + kSquaresChunk - 1) / kSquaresChunk;
  execution::host_for(elements, kSquaresChunk, [&](std::int64_t begin, std::int64_t end) {
    double sum = 0;
    for (std::int64_t i = begin; i < end; ++i)
      sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    squares[begin / kSquaresChunk] = sum;
  });
  double sum = 0;
  for (std::int64_t i = 0; i < chunks; ++i) sum += squares[i];
  const auto factor = static_cast<Accumulation<S>>(1 / (std::sqrt(sum) + 1e-7));
  execution::host_for(elements, kSquaresChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      to[i] = static_cast<S>(static_cast<Accumulation<S>>(x[i]) * factor);
  });
}

/// The lower blocks of c = op(x) op(x)^T. @param transpose no: rows of x are multiplied
template <class S>
void multiply_lower(const Matrix<const S>& x, Transpose transpose, const Matrix<S>& c) {
  const bool by_rows = transpose == Transpose::no;
  const std::int64_t edge = symmetric_block(c.rows);
  for (std::int64_t first = 0; first < c.rows; first += edge) {
    const std::int64_t rows = std::min(edge, c.rows - first), end = first + rows;
    const Matrix<const S> left = by_rows ? Matrix<const S>{x.row(first), rows, x.columns, x.stride}
                                         : Matrix<const S>{x.data + first, x.rows, rows, x.stride};
    const Matrix<const S> right = by_rows ? Matrix<const S>{x.data, end, x.columns, x.stride}
                                          : Matrix<const S>{x.data, x.rows, end, x.stride};
    matmul<S, S, S>({left, transpose}, {right, by_rows ? Transpose::yes : Transpose::no},
                    {c.row(first), rows, end, c.stride}, false);
  }
}

template <class S>
void mirror(const Matrix<S>& c) {
  execution::host_for(c.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t j = i + 1; j < c.rows; ++j) c(i, j) = c(j, i);
  });
}

template <class S>
void make_polynomial(const Matrix<S>& gram, const Matrix<S>& square,
                     const NewtonSchulzOptions& options, double scale) {
  using A = Accumulation<S>;
  const auto [a, b, c] = options.coefficients;
  execution::host_for(
      gram.rows, kRows, [&, a = a, b = b, c = c](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          for (std::int64_t j = 0; j <= i; ++j)
            square(i, j) = static_cast<S>(
                static_cast<A>(scale * ((i == j ? a : 0) + b * static_cast<double>(gram(i, j)) +
                                        c * static_cast<double>(square(i, j)))));
      });
  mirror(square);
}

template <class S>
void iterate(const NewtonSchulz& op, const EqualMatrices& m, const NewtonSchulzRoom<S>& room,
             S* given) {
  const std::int64_t n = m.smaller();
  const bool wide = m.rows <= m.columns;
  const Matrix<S> gram{room.gram, n, n, n}, polynomial{room.polynomial, n, n, n};
  S *x = op.options.steps % 2 == 0 ? given : room.other, *y = x == given ? room.other : given;
  normalise(given, x, room.squares, m.rows * m.columns);
  for (int step = 0; step < op.options.steps; ++step) {
    const Matrix<const S> from{x, m.rows, m.columns, m.columns};
    multiply_lower<S>(from, wide ? Transpose::no : Transpose::yes, gram);
    mirror(gram);
    multiply_lower<S>(gram, Transpose::no, polynomial);  // the square of what is symmetric
    make_polynomial(gram, polynomial, op.options, scale_of(m, op.options, step));
    const Matrix<const S> factor = polynomial;
    matmul<S, S, S>({wide ? factor : from}, {wide ? from : factor},
                    {y, m.rows, m.columns, m.columns}, false);
    std::swap(x, y);
  }
}

}  // namespace

template <class S>
void NewtonSchulz::reference(const Operands<Pointers<S>>& o) const {
  WorkspaceParts parts = newton_schulz_workspace(o.workspace);
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const EqualMatrices& m = matrices[i];
    const NewtonSchulzRoom<S> room(*this, m, parts);
    for (std::int64_t one = 0; one < m.count; ++one)
      iterate(*this, m, room, o.matrices[i].x + one * m.rows * m.columns);
  }
}

STOWAGE_REFERENCES(NewtonSchulz)

}  // namespace stowage::kernels
