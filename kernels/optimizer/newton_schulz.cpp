#include "kernels/optimizer/newton_schulz.hpp"

#include <cmath>
#include <vector>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/linear/dense_product.hpp"
#include "kernels/linear/product_fill.hpp"
#include "kernels/machine.hpp"
#include "kernels/optimizer/newton_schulz_launch.hpp"

namespace stowage::kernels {
namespace {

using execution::Cost;
using execution::Dtype;

/// Products of `count` matrices that lie one behind the other.
struct Batch {
  std::int64_t count;
  Dtype dtype;
  cudaStream_t stream;

  template <class S>
  void multiply(ProductShape shape, const S* a, std::int64_t a_each, const S* b,
                std::int64_t b_each, S* c, std::int64_t c_each) const {
    shape.batch = count;
    shape.a_batch_stride = a_each;
    shape.b_batch_stride = b_each;
    shape.c_batch_stride = c_each;
    dense_product(shape, a, b, c, stream);
  }
};

/// The lower blocks of (n, n) c = op(x) op(x)^T of x (rows, columns).
/// @param transpose no: rows of x are multiplied
template <class S>
void multiply_lower(const Batch& batch, const S* x, std::int64_t rows, std::int64_t columns,
                    Transpose transpose, S* c) {
  const bool by_rows = transpose == Transpose::no;
  const std::int64_t n = by_rows ? rows : columns, depth = by_rows ? columns : rows;
  const std::int64_t edge = symmetric_block(n);
  for (std::int64_t first = 0; first < n; first += edge) {
    const std::int64_t some = std::min(edge, n - first);
    ProductShape shape =
        dense_shape(some, first + some, depth, transpose, by_rows ? Transpose::yes : Transpose::no,
                    batch.dtype, batch.dtype, false);
    shape.a_stride = shape.b_stride = columns;
    shape.c_stride = n;
    batch.multiply(shape, x + (by_rows ? first * columns : first), rows * columns, x,
                   rows * columns, c + first * n, n * n);
  }
}

/// FLOPs of a symmetric product by its lower blocks.
double lower_flops(std::int64_t n, std::int64_t depth) {
  const std::int64_t edge = symmetric_block(n);
  double flops = 0;
  for (std::int64_t first = 0; first < n; first += edge) {
    const std::int64_t rows = std::min(edge, n - first);
    flops += product_flops(rows, first + rows, depth);
  }
  return flops;
}

bool by_tiles(const EqualMatrices& m, Dtype storage) {
  return fits_tiles(m, storage) && machine().wgmma();
}

/// Products of A's size in a part of the iterations: of each the polynomial; of all but the first
/// the product of the polynomials; of all but the last two for the next A.
double square_products(int part) { return 4 * part - 3; }

double flops_of(const EqualMatrices& m, const std::vector<int>& parts) {
  const std::int64_t n = m.smaller();
  double flops = 0;
  for (const int part : parts)
    flops += lower_flops(n, m.larger()) + square_products(part) * lower_flops(n, n) +
             product_flops(n, m.larger(), n);
  return flops;
}

std::vector<int> parts_of(int steps, int part) {
  std::vector<int> parts(static_cast<std::size_t>(steps / part), part);
  if (steps % part != 0) parts.push_back(steps % part);
  return parts;
}

/// Iterations that A may be taken through before it is made of X again. Rounding leaves A negative
/// eigenvalues, of 2^-11 of the largest one in fp16. There the polynomial is near a, so each
/// iteration makes them a^2 times as large, until b and c make them grow faster still. Those of the
/// last A stay within 1/8.
int longest_part(const NewtonSchulzOptions& options) {
  const double a = std::abs(options.coefficients[0]);
  if (a <= 1) return options.steps;
  const double grown = 8 * std::log(2) / (2 * std::log(a));
  return 1 + static_cast<int>(std::min<double>(grown, options.steps - 1));
}

/// Matrices of one shape by the products of ../linear/.
template <class S>
int launch_plainly(const EqualMatrices& m, const NewtonSchulz& op, const NewtonSchulzRoom<S>& room,
                   S* given, void* stream) {
  const Batch batch{m.count, op.storage, static_cast<cudaStream_t>(stream)};
  const std::int64_t n = m.smaller(), each = m.rows * m.columns;
  const bool wide = m.rows <= m.columns;
  S *x = op.options.steps % 2 == 0 ? given : room.other, *y = x == given ? room.other : given;
  int code = optimizer::launch_normalise<S>(m, given, x, room.squares, stream);
  for (int step = 0; code == 0 && step < op.options.steps; ++step) {
    multiply_lower<S>(batch, x, m.rows, m.columns, wide ? Transpose::no : Transpose::yes,
                      room.gram);
    code = optimizer::launch_mirror<S>(room.gram, m.count, n, stream);
    if (code != 0) return code;
    multiply_lower<S>(batch, room.gram, n, n, Transpose::no, room.polynomial);
    code = optimizer::launch_polynomial<S>(room.gram, room.polynomial, m.count, n, op.options,
                                           scale_of(m, op.options, step), stream);
    if (code != 0) return code;
    const ProductShape shape = dense_shape(m.rows, m.columns, n, Transpose::no, Transpose::no,
                                           op.storage, op.storage, false);
    if (wide)
      batch.multiply<S>(shape, room.polynomial, n * n, x, each, y, each);
    else
      batch.multiply<S>(shape, x, each, room.polynomial, n * n, y, each);
    std::swap(x, y);
  }
  return code;
}

/// Of matrices of one shape, by tiles: X read twice and written once of a part, A written, the
/// product of polynomials read; of a product two squares read and one written.
double tile_bytes(const EqualMatrices& m, const std::vector<int>& parts, Dtype storage) {
  const double matrices = bytes(m.elements(), storage);
  const double squares = bytes(m.count * m.smaller() * m.smaller(), storage);
  double all = 3 * matrices;
  for (const int part : parts) all += 3 * matrices + (2 + 3 * square_products(part)) * squares;
  return all;
}

/// The same by the products of ../linear/: in a step X read twice and written; A written, read
/// three times and mirrored; the polynomial.
Cost plain_cost(const EqualMatrices& m, int steps, Dtype storage) {
  const std::int64_t n = m.smaller();
  const double matrices = bytes(m.elements(), storage), squares = bytes(m.count * n * n, storage);
  const double times = steps;
  const std::int64_t blocks = (n + symmetric_block(n) - 1) / symmetric_block(n);
  Cost cost{static_cast<double>(m.count) * flops_of(m, parts_of(steps, 1)),
            3 * matrices + times * (3 * matrices + 9 * squares),
            times * product_idle_flops(m.count * n, m.larger(), n)};
  cost.more_kernels = 2 + times * static_cast<double>(2 * blocks + 3);
  return cost;
}

}  // namespace

std::vector<int> gram_iterations(const EqualMatrices& m, const NewtonSchulzOptions& options) {
  std::vector<int> best = parts_of(options.steps, 1);
  for (int part = 2; part <= longest_part(options); ++part)
    if (std::vector<int> parts = parts_of(options.steps, part);
        flops_of(m, parts) < flops_of(m, best))
      best = std::move(parts);
  return best;
}

double newton_schulz_flops(std::int64_t rows, std::int64_t columns,
                           const NewtonSchulzOptions& options) {
  const EqualMatrices one{.count = 1, .rows = rows, .columns = columns};
  return flops_of(one, fits_tiles(one, Dtype::bf16) ? gram_iterations(one, options)
                                                    : parts_of(options.steps, 1));
}

std::string NewtonSchulz::fault() const {
  for (const EqualMatrices& m : matrices)
    if (m.count < 1 || m.rows < 1 || m.columns < 1 || options.steps < 1)
      return fmt::format("{} matrices of {} x {}, {} steps", m.count, m.rows, m.columns,
                         options.steps);
  return {};
}

std::size_t NewtonSchulz::workspace_bytes() const {
  return execution::with_storage_type(storage, [&]<class S>() {
    WorkspaceParts parts = newton_schulz_workspace(nullptr);
    for (const EqualMatrices& m : matrices) NewtonSchulzRoom<S>(*this, m, parts);
    return parts.bytes();
  });
}

template <class S>
int NewtonSchulz::launch(const Operands<Pointers<S>>& o, void* stream) const {
  WorkspaceParts parts = newton_schulz_workspace(o.workspace);
  std::vector<TileMatrices> tiles;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const EqualMatrices& m = matrices[i];
    S* const x = o.matrices[i].x;
    const NewtonSchulzRoom<S> room(*this, m, parts);
    if constexpr (std::is_same_v<S, execution::Bf16>)
      if (by_tiles(m, storage) && reinterpret_cast<std::uintptr_t>(x) % 16 == 0) {
        tiles.push_back({m, x, room, gram_iterations(m, options)});
        continue;
      }
    if (const int code = launch_plainly<S>(m, *this, room, x, stream); code != 0) return code;
  }
  return optimizer::launch_newton_schulz_sm90(options, tiles, machine().multiprocessors, stream);
}

Cost NewtonSchulz::cost() const {
  Cost cost;
  std::int64_t shapes = 0;
  for (const EqualMatrices& m : matrices) {
    if (!by_tiles(m, storage)) {
      cost = cost + plain_cost(m, options.steps, storage);
      continue;
    }
    const std::vector<int> parts = gram_iterations(m, options);
    cost = cost +
           Cost{static_cast<double>(m.count) * flops_of(m, parts), tile_bytes(m, parts, storage)};
    ++shapes;
  }
  // By tiles squares, quotients and products are a launch each.
  const std::int64_t launches =
      3 * ((shapes + optimizer::kMostShapes - 1) / optimizer::kMostShapes);
  cost.more_kernels += static_cast<double>(launches) - 1;
  return cost;
}

STOWAGE_OPERATOR_RUN(NewtonSchulz)

}  // namespace stowage::kernels
