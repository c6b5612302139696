#include "kernels/elementwise/elementwise.hpp"

#include <cstdint>
#include <type_traits>

#include "kernels/cost.hpp"
#include "kernels/elementwise/functors.hpp"
#include "kernels/operands.hpp"

namespace stowage::kernels {

using execution::Bf16;
using execution::Cost;
using execution::Dtype;
using execution::parallel_for;
using execution::Queue;
using execution::View;

namespace {

// Runs a functor over the pieces of `count` elements.
template <class Functor>
void for_pieces(Queue& queue, const Functor& functor) {
  parallel_for(queue, detail::pieces(functor.count, Functor::kElements), functor);
}

template <class... Pointers>
bool aligned(Pointers... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

// Whether all of these are whole pieces of T.
template <class T, class... Counts>
bool in_pieces(std::int64_t count, Counts... counts) {
  return ((count % detail::kPiece<T> == 0) && ... && (counts % detail::kPiece<T> == 0));
}
template <class S>
bool in_pieces(const detail::ColumnShares& of) {
  return in_pieces<S>(of.shares[0], of.shares[1], of.shares[2]);
}

template <class From, class To>
void copy_rows(Queue& queue, const Matrix<const From>& from, const Matrix<To>& to) {
  const bool whole = aligned(from.data, to.data) && in_pieces<To>(to.columns, to.stride) &&
                     in_pieces<From>(from.stride);
  for_pieces(queue, detail::CopyRows<From, To>{from.data, to.data, to.columns, from.stride,
                                               to.stride, to.rows * to.columns, whole});
}

// The dtype of columns, of which packed has as many elements.
Dtype check_packed(const Operands& operands, const Columns& columns, const View& packed) {
  const Dtype storage = operands.storage(columns.view, "columns");
  operands.rank(columns.view, "columns", 2);
  operands.check(columns, "columns", storage, columns.rows(), columns.count);
  operands.require(packed.buffer().elements() == columns.rows() * columns.count,
                   "packed has another number of elements than the columns");
  return storage;
}

// What both directions of split_columns work on, checked.
detail::ColumnShares column_shares(std::string_view op, const View& x, const ColumnBlocks& blocks,
                                   const View& parts) {
  const Operands operands(op);
  const Dtype storage = operands.storage(x, "x");
  operands.rank(x, "x", 2);
  operands.rank(parts, "parts", 3);
  const std::int64_t count = parts.extent(0), rows = x.extent(0), width = blocks.width();
  operands.check(x, "x", storage, {rows, width});
  detail::ColumnShares of{rows, width, blocks.part_width(count), {}, {}, {}};
  for (int b = 0; b < 3; ++b) {
    const std::int64_t copies = of.copies[b] = blocks.copies[b];
    operands.require(copies > 0 && count % copies == 0 && blocks.widths[b] % (count / copies) == 0,
                     "a block does not divide among the parts");
    of.widths[b] = blocks.widths[b];
    of.shares[b] = blocks.share(b, count);
  }
  operands.check(parts, "parts", storage, {count, rows, of.part_width});
  return of;
}

}  // namespace

void add(Queue& queue, const View& a, const View& b, const View& out) {
  const Operands operands("add");
  const Dtype storage = operands.storage(out, "out");
  operands.same(a, "a", out);
  operands.same(b, "b", out);
  execution::with_storage_type(storage, [&]<class S>() {
    const auto *x = a.as<const S>(), *y = b.as<const S>();
    for_pieces(queue, detail::Add<S>{x, y, out.as<S>(), out.buffer().elements(),
                                     aligned(x, y, out.as<S>())});
  });
}

void fill(Queue& queue, const View& x, double value) {
  Operands("fill").require(static_cast<bool>(x), "x is absent");
  const auto launch = [&]<class T>(T rounded) {
    for_pieces(queue,
               detail::Fill<T>{x.as<T>(), rounded, x.buffer().elements(), aligned(x.as<T>())});
  };
  switch (x.dtype()) {
    case Dtype::fp64:
      return launch(value);
    case Dtype::fp32:
      return launch(static_cast<float>(value));
    case Dtype::bf16:
      return launch(static_cast<Bf16>(value));
    case Dtype::int32:
      return launch(static_cast<std::int32_t>(value));
    case Dtype::int64:
      return launch(static_cast<std::int64_t>(value));
    case Dtype::uint8:
      return launch(static_cast<std::uint8_t>(value));
  }
}

void fill_normal(Queue& queue, const View& x, std::uint64_t seed, std::uint64_t stream, float scale,
                 const execution::GlobalIndex& index) {
  execution::with_storage_type(Operands("fill_normal").storage(x, "x"), [&]<class S>() {
    for_pieces(queue,
               detail::FillNormal<S>{x.as<S>(), seed, stream, scale, index, x.buffer().elements()});
  });
}

void cast(Queue& queue, const View& x, const View& y) {
  const Operands operands("cast");
  const Dtype from = operands.storage(x, "x"), to = operands.storage(y, "y");
  const std::int64_t count = y.buffer().elements();
  operands.require(x.buffer().elements() == count, "x and y differ in their number of elements");
  operands.require((from == Dtype::fp64) == (to == Dtype::fp64), "fp64 is cast to fp64 only");
  const auto launch = [&]<class From, class To>(From* source, To* target) {
    for_pieces(queue, detail::Cast<From, To>{source, target, count, aligned(source, target)});
  };
  execution::with_storage_type(from, [&]<class From>() {
    execution::with_storage_type(to, [&]<class To>() {
      if constexpr (std::is_same_v<From, double> == std::is_same_v<To, double>)
        launch(x.as<From>(), y.as<To>());
    });
  });
}

void pack_columns(Queue& queue, const Columns& from, const View& packed) {
  const Operands operands("pack_columns");
  const Dtype storage = check_packed(operands, from, packed);
  operands.require(packed.dtype() == storage, "packed has another dtype than the columns");
  execution::with_storage_type(storage, [&]<class S>() {
    const std::int64_t rows = from.rows(), count = from.count;
    copy_rows(queue,
              Matrix<const S>{from.view.as<const S>() + from.first, rows, count, from.width()},
              Matrix<S>{packed.as<S>(), rows, count, count});
  });
}

void unpack_columns(Queue& queue, const View& packed, const Columns& to) {
  const Operands operands("unpack_columns");
  const Dtype storage = check_packed(operands, to, packed);
  const bool wide = packed.dtype() != storage;
  operands.require(!wide || packed.dtype() == execution::accumulation(storage),
                   "packed has neither the dtype of the columns nor of their sums");
  execution::with_storage_type(storage, [&]<class S>() {
    const std::int64_t rows = to.rows(), count = to.count;
    const auto from = [&]<class From>(const From* first) {
      copy_rows(queue, Matrix<const From>{first, rows, count, count},
                Matrix<S>{to.view.as<S>() + to.first, rows, count, to.width()});
    };
    wide ? from(packed.as<const execution::Accumulation<S>>()) : from(packed.as<const S>());
  });
}

void split_columns(Queue& queue, const View& x, const ColumnBlocks& blocks, const View& parts) {
  const detail::ColumnShares of = column_shares("split_columns", x, blocks, parts);
  execution::with_storage_type(x.dtype(), [&]<class S>() {
    const auto* from = x.as<const S>();
    auto* to = parts.as<S>();
    for_pieces(queue, detail::SplitColumns<S>{from, to, of, parts.buffer().elements(),
                                              aligned(from, to) && in_pieces<S>(of)});
  });
}

void join_columns(Queue& queue, const View& parts, const ColumnBlocks& blocks, const View& x) {
  const detail::ColumnShares of = column_shares("join_columns", x, blocks, parts);
  execution::with_storage_type(x.dtype(), [&]<class S>() {
    const auto* from = parts.as<const S>();
    auto* to = x.as<S>();
    for_pieces(queue, detail::JoinColumns<S>{from, to, of, x.buffer().elements(),
                                             aligned(from, to) && in_pieces<S>(of)});
  });
}

Cost pack_columns_cost(std::int64_t count, Dtype storage) { return {0, 2 * bytes(count, storage)}; }

Cost split_columns_cost(std::int64_t rows, const ColumnBlocks& blocks, std::int64_t parts,
                        Dtype storage) {
  return {0, bytes(rows * (blocks.width() + parts * blocks.part_width(parts)), storage)};
}

Cost add_cost(std::int64_t count, Dtype storage) {
  return {static_cast<double>(count), 3 * bytes(count, storage)};
}

Cost fill_cost(std::int64_t count, Dtype dtype) { return {0, bytes(count, dtype)}; }

Cost cast_cost(std::int64_t count, Dtype from, Dtype to) {
  return {0, bytes(count, from) + bytes(count, to)};
}

}  // namespace stowage::kernels
