#pragma once

#include "execution/global_index.hpp"
#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Elementwise operators, written once as functors for both backends (functors.hpp).

/// Every element of x, of any dtype, becomes `value` (rounded to that dtype).
void fill(execution::Queue& queue, const execution::View& x, double value);
execution::Cost fill_cost(std::int64_t count, execution::Dtype dtype);

/// Element i of x becomes element index(i) of a random stream, nearly normal:
/// execution::normal(seed, stream, index(i), scale), rounded to the floating dtype of x; the same
/// bits on every backend.
void fill_normal(execution::Queue& queue, const execution::View& x, std::uint64_t seed,
                 std::uint64_t stream, float scale, const execution::GlobalIndex& index = {});

/// out = a + b, rounded once. out may be a or b.
struct Add {
  static constexpr std::string_view kName = "add";
  execution::BufferInfo each_one;  ///< dtype and shape of every operand

  template <class T>
  struct Operands {
    In<T> a, b;
    Out<T> out;
  };
  void each(auto&& f, auto&... o) const {
    f(in("a", each_one.dtype, each_one.shape), o.a...);
    f(in("b", each_one.dtype, each_one.shape), o.b...);
    f(out("out", each_one.dtype, each_one.shape), o.out...);
  }
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// y = factor * x, computed in the accumulation dtype and rounded once.
struct Scale {
  static constexpr std::string_view kName = "scale";
  execution::BufferInfo each_one;  ///< dtype and shape of both operands
  double factor;

  template <class T>
  struct Operands {
    In<T> x;
    Out<T> y;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", each_one.dtype, each_one.shape), o.x...);
    f(out("y", each_one.dtype, each_one.shape), o.y...);
  }
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// y = x in dtype `to`: fp32 and bf16, or that of x.
struct Cast {
  static constexpr std::string_view kName = "cast";
  execution::BufferInfo from;  ///< dtype and shape of x
  execution::Dtype to;

  template <class T>
  struct Operands {
    In<T> x;
    Out<T> y;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", from.dtype, from.shape), o.x...);
    f(out("y", to, from.shape), o.y...);
  }
  std::string fault() const;
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// Columns of a tensor, row by row without gaps.
struct PackColumns {
  static constexpr std::string_view kName = "pack_columns";
  std::int64_t rows, count;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    InColumns<T> columns;
    Out<T> packed;
  };
  void each(auto&& f, auto&... o) const {
    f(in("columns", storage, {rows, count}), o.columns...);
    f(out("packed", storage, {rows, count}), o.packed...);
  }
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// And back, into the last columns of x: of its dtype, or of that of its sums, which are rounded.
/// The columns before them come along, or stay as they are.
struct UnpackColumns {
  static constexpr std::string_view kName = "unpack_columns";
  std::int64_t rows, width, count;  ///< count: of the last columns
  execution::Dtype from, storage;
  bool all;  ///< the columns before them come along

  template <class T>
  struct Operands {
    In<T> last;
    Out<T> x;
    In<T> before;
  };
  void each(auto&& f, auto&... o) const {
    f(in("last", from, {rows, count}), o.last...);
    f(sum("x", !all, storage, {rows, width}), o.x...);
    f(in("before", storage, {rows, width - count}).when(all), o.before...);
  }
  std::string fault() const;
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// Blocks of columns that lie side by side, each of which parts share equally.
struct ColumnBlocks {
  std::int64_t widths[3] = {};         ///< 0: none
  std::int64_t copies[3] = {1, 1, 1};  ///< neighbouring parts that have the same share of a block

  std::int64_t width() const { return widths[0] + widths[1] + widths[2]; }
  /// Columns of a block that one of `parts` has, and of all blocks.
  std::int64_t share(int block, std::int64_t parts) const {
    return widths[block] * copies[block] / parts;
  }
  std::int64_t part_width(std::int64_t parts) const {
    return share(0, parts) + share(1, parts) + share(2, parts);
  }
  /// What is wrong if a block does not divide among so many parts.
  std::string fault(std::int64_t parts) const;
};

/// Part i of x has share i / copies of every block, of count / copies equal ones, side by side.
struct SplitColumns {
  static constexpr std::string_view kName = "split_columns";
  std::int64_t rows, count;  ///< count: of parts
  ColumnBlocks blocks;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    In<T> x;
    Out<T> parts;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {rows, blocks.width()}), o.x...);
    f(out("parts", storage, {count, rows, blocks.part_width(count)}), o.parts...);
  }
  std::string fault() const { return blocks.fault(count); }
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// And back: x has the sum of what parts have of the same share, in their order and in the
/// accumulation dtype, rounded once.
struct JoinColumns {
  static constexpr std::string_view kName = "join_columns";
  std::int64_t rows, count;
  ColumnBlocks blocks;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    In<T> parts;
    Out<T> x;
  };
  void each(auto&& f, auto&... o) const {
    f(in("parts", storage, {count, rows, blocks.part_width(count)}), o.parts...);
    f(out("x", storage, {rows, blocks.width()}), o.x...);
  }
  std::string fault() const { return blocks.fault(count); }
  execution::Cost cost() const { return SplitColumns{rows, count, blocks, storage}.cost(); }
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

}  // namespace stowage::kernels
