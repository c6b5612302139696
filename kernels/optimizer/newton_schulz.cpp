#include "kernels/optimizer/newton_schulz.hpp"

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

/// Whether the kernels for tensor cores serve matrices of this shape: however many they are, so
/// that a matrix gets the same bits among any others.
bool by_tiles(const NewtonSchulz& op) {
  return op.storage == Dtype::bf16 && op.rows % 8 == 0 && op.columns % 8 == 0 &&
         op.smaller() >= kLeastByTiles && machine().wgmma();
}

}  // namespace

double newton_schulz_flops(std::int64_t rows, std::int64_t columns, int steps) {
  const std::int64_t n = std::min(rows, columns), longer = std::max(rows, columns);
  return steps * (lower_flops(n, longer) + lower_flops(n, n) + product_flops(n, longer, n));
}

std::string NewtonSchulz::fault() const {
  return count > 0 && rows > 0 && columns > 0 && options.steps > 0
             ? ""
             : fmt::format("{} matrices of {} x {}, {} steps", count, rows, columns, options.steps);
}

std::size_t NewtonSchulz::workspace_bytes() const {
  return execution::with_storage_type(
      storage, [&]<class S>() { return NewtonSchulzRoom<S>(*this, nullptr).bytes; });
}

template <class S>
int NewtonSchulz::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const NewtonSchulzRoom<S> room(*this, o.workspace);
  const Batch batch{count, storage, static_cast<cudaStream_t>(stream)};
  const std::int64_t n = smaller(), each = rows * columns;
  const bool wide = rows <= columns;
  S *x = options.steps % 2 == 0 ? o.x : room.other, *y = x == o.x ? room.other : o.x;
  int code = optimizer::launch_normalise<S>(*this, o.x, x, room.squares, stream);
  if constexpr (std::is_same_v<S, execution::Bf16>) {
    if (by_tiles(*this) && reinterpret_cast<std::uintptr_t>(o.x) % 16 == 0) {
      const int blocks = machine().multiprocessors;
      for (int step = 0; code == 0 && step < options.steps; ++step) {
        code = optimizer::launch_gram_sm90(*this, x, room.gram, blocks, stream);
        if (code == 0)
          code = optimizer::launch_polynomial_sm90(*this, room.gram, room.polynomial,
                                                   scale_of(*this, step), blocks, stream);
        if (code == 0)
          code = optimizer::launch_step_sm90(*this, room.polynomial, x, y, blocks, stream);
        std::swap(x, y);
      }
      return code;
    }
  }
  for (int step = 0; code == 0 && step < options.steps; ++step) {
    multiply_lower<S>(batch, x, rows, columns, wide ? Transpose::no : Transpose::yes, room.gram);
    code = optimizer::launch_mirror<S>(room.gram, count, n, stream);
    if (code != 0) return code;
    multiply_lower<S>(batch, room.gram, n, n, Transpose::no, room.polynomial);
    code = optimizer::launch_polynomial<S>(room.gram, room.polynomial, count, n, options,
                                           scale_of(*this, step), stream);
    if (code != 0) return code;
    const ProductShape shape = dense_shape(rows, columns, wide ? rows : columns, Transpose::no,
                                           Transpose::no, storage, storage, false);
    if (wide)
      batch.multiply<S>(shape, room.polynomial, n * n, x, each, y, each);
    else
      batch.multiply<S>(shape, x, each, room.polynomial, n * n, y, each);
    std::swap(x, y);
  }
  return code;
}

Cost NewtonSchulz::cost() const {
  const std::int64_t n = smaller(), longer = std::max(rows, columns);
  const double matrices = bytes(count * rows * columns, storage);
  const double squares = bytes(count * n * n, storage);
  // Of a step: X read twice and written; A written, read three times and, but by tiles, mirrored;
  // the polynomial. Tiles of a batch fill multiprocessors together.
  const double times = options.steps;
  const bool tiles = by_tiles(*this);
  const std::int64_t blocks = (n + symmetric_block(n) - 1) / symmetric_block(n);
  Cost cost{static_cast<double>(count) * newton_schulz_flops(rows, columns, options.steps),
            3 * matrices + times * (3 * matrices + (tiles ? 5 : 9) * squares),
            times * product_idle_flops(count * n, longer, n)};
  cost.more_kernels = 1 + times * (tiles ? 3 : static_cast<double>(2 * blocks + 3));
  return cost;
}

STOWAGE_OPERATOR_RUN(NewtonSchulz)

}  // namespace stowage::kernels
