#pragma once

#include <cstdint>
#include <type_traits>

#include "execution/dtype.hpp"
#include "execution/global_index.hpp"
#include "execution/parallel_for.hpp"
#include "execution/philox.hpp"

/// What the elementwise operators do to a piece of 16 bytes, written once for both backends.
///
/// Piece i is elements [i * kPiece, (i + 1) * kPiece), or what there is of it. A whole piece moves
/// as one, which `aligned` allows: all addresses lie on 16 bytes.
namespace stowage::kernels::detail {

/// Elements of 16 bytes of T.
template <class T>
inline constexpr int kPiece = static_cast<int>(16 / sizeof(T));

constexpr std::int64_t pieces(std::int64_t count, int piece) { return (count + piece - 1) / piece; }

/// N neighbouring elements that a thread reads or writes in accesses of up to 16 bytes.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Piece {
  T values[N];

  STOWAGE_PORTABLE static const Piece& at(const T* address) {
    return *reinterpret_cast<const Piece*>(address);
  }
  STOWAGE_PORTABLE static Piece& at(T* address) { return *reinterpret_cast<Piece*>(address); }
  /// Writes a piece as one where it was made value by value, which nvcc stores so otherwise.
  STOWAGE_PORTABLE static void put(T* address, const Piece& piece) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(Piece) == sizeof(uint4))
      *reinterpret_cast<uint4*>(address) = __builtin_bit_cast(uint4, piece);
    else
#endif
      at(address) = piece;
  }
};

template <class S>
struct Add {
  static constexpr int kElements = kPiece<S>;

  const S* a;
  const S* b;
  S* out;
  std::int64_t count;
  bool aligned;

  STOWAGE_PORTABLE static S sum(S x, S y) {
    using A = execution::Accumulation<S>;
    return static_cast<S>(static_cast<A>(x) + static_cast<A>(y));
  }
  STOWAGE_PORTABLE void operator()(std::int64_t piece) const {
    using P = Piece<S, kElements>;
    const std::int64_t begin = piece * kElements;
    if (aligned && begin + kElements <= count) {
      const P x = P::at(a + begin), y = P::at(b + begin);
      P result;
      for (int i = 0; i < kElements; ++i) result.values[i] = sum(x.values[i], y.values[i]);
      P::at(out + begin) = result;
    } else {
      for (std::int64_t i = begin; i < begin + kElements && i < count; ++i)
        out[i] = sum(a[i], b[i]);
    }
  }
};

/// Of few elements: one at a time.
template <class S>
struct Scale {
  static constexpr int kElements = 1;

  const S* x;
  S* y;
  execution::Accumulation<S> factor;
  std::int64_t count;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    y[i] = static_cast<S>(factor * static_cast<execution::Accumulation<S>>(x[i]));
  }
};

template <class T>
struct Fill {
  static constexpr int kElements = kPiece<T>;

  T* x;
  T value;
  std::int64_t count;
  bool aligned;

  STOWAGE_PORTABLE void operator()(std::int64_t piece) const {
    using P = Piece<T, kElements>;
    const std::int64_t begin = piece * kElements;
    if (aligned && begin + kElements <= count) {
      P result;
      for (int i = 0; i < kElements; ++i) result.values[i] = value;
      P::at(x + begin) = result;
    } else {
      for (std::int64_t i = begin; i < begin + kElements && i < count; ++i) x[i] = value;
    }
  }
};

/// 16 bytes of the result: 8 bytes, 16 or twice 16 of x.
template <class From, class To>
struct Cast {
  static constexpr int kElements = kPiece<To>;

  const From* x;
  To* y;
  std::int64_t count;
  bool aligned;

  STOWAGE_PORTABLE static To cast(From value) {
    return static_cast<To>(static_cast<execution::Accumulation<From>>(value));
  }
  STOWAGE_PORTABLE void operator()(std::int64_t piece) const {
    const std::int64_t begin = piece * kElements;
    if (aligned && begin + kElements <= count) {
      const auto from = Piece<From, kElements>::at(x + begin);
      Piece<To, kElements> result;
      for (int i = 0; i < kElements; ++i) result.values[i] = cast(from.values[i]);
      Piece<To, kElements>::at(y + begin) = result;
    } else {
      for (std::int64_t i = begin; i < begin + kElements && i < count; ++i) y[i] = cast(x[i]);
    }
  }
};

/// Elements 2i and 2i + 1 of a nearly normal stream: they share random blocks.
template <class T>
struct FillNormal {
  static constexpr int kElements = 2;

  T* x;
  std::uint64_t seed, stream;
  float scale;
  execution::GlobalIndex index;
  std::int64_t count;

  STOWAGE_PORTABLE void operator()(std::int64_t two) const {
    std::int64_t pair = -1;
    std::int32_t values[2];  // even, odd
    for (std::int64_t i = 2 * two; i < count && i < 2 * two + 2; ++i) {
      const std::int64_t element = index(i);
      if (element / 2 != pair) {
        pair = element / 2;
        execution::normal_pair(seed, stream, static_cast<std::uint64_t>(pair), values[0],
                               values[1]);
      }
      x[i] = static_cast<T>(static_cast<float>(values[element % 2]) * scale);
    }
  }
};

/// Rows of `columns` elements, which may be parts of wider rows on either side, rounded to the type
/// that they get.
template <class From, class To>
struct CopyRows {
  static constexpr int kElements = kPiece<To>;

  const From* from;
  To* to;
  std::int64_t columns, from_stride, to_stride;
  std::int64_t count;
  bool aligned;  ///< and no piece crosses the end of a row

  STOWAGE_PORTABLE static To rounded(From value) {
    if constexpr (std::is_same_v<From, To>)
      return value;
    else
      return static_cast<To>(value);
  }
  STOWAGE_PORTABLE void operator()(std::int64_t piece) const {
    const std::int64_t begin = piece * kElements;
    std::int64_t row = begin / columns, column = begin - row * columns;
    if (aligned) {
      const auto in = Piece<From, kElements>::at(from + row * from_stride + column);
      Piece<To, kElements> out;
      for (int i = 0; i < kElements; ++i) out.values[i] = rounded(in.values[i]);
      Piece<To, kElements>::at(to + row * to_stride + column) = out;
      return;
    }
    for (std::int64_t i = begin; i < begin + kElements && i < count; ++i) {
      to[row * to_stride + column] = rounded(from[row * from_stride + column]);
      if (++column < columns) continue;
      column = 0;
      ++row;
    }
  }
};

/// Rows of blocks of columns, and the parts of them.
struct ColumnShares {
  using Each = std::int64_t[3];  ///< of each block

  std::int64_t rows, width, part_width;
  Each widths, shares, copies;  ///< shares: columns of one part

  /// The block that a column is in, of blocks as wide as these.
  STOWAGE_PORTABLE static int block(std::int64_t column, const Each& wide) {
    return column < wide[0] ? 0 : column < wide[0] + wide[1] ? 1 : 2;
  }
  // No number is asked for by an index that only a run knows: a thread would copy all of them.
  STOWAGE_PORTABLE static std::int64_t pick(int block, const Each& values) {
    return block == 0 ? values[0] : block == 1 ? values[1] : values[2];
  }
  STOWAGE_PORTABLE static std::int64_t before(int block, const Each& values) {
    return block == 0 ? 0 : block == 1 ? values[0] : values[0] + values[1];
  }
};

/// Elements of the parts (p, rows, part_width).
template <class S>
struct SplitColumns {
  static constexpr int kElements = kPiece<S>;

  const S* from;
  S* to;
  ColumnShares of;
  std::int64_t count;
  bool aligned;  ///< and no piece crosses the end of a share

  /// Where element i of the parts comes from.
  STOWAGE_PORTABLE std::int64_t source(std::int64_t i) const {
    const std::int64_t line = i / of.part_width, part = line / of.rows;
    const std::int64_t column = i - line * of.part_width;
    const int block = ColumnShares::block(column, of.shares);
    const std::int64_t share =
        part / ColumnShares::pick(block, of.copies) * ColumnShares::pick(block, of.shares);
    return (line - part * of.rows) * of.width + column + share +
           ColumnShares::before(block, of.widths) - ColumnShares::before(block, of.shares);
  }
  STOWAGE_PORTABLE void operator()(std::int64_t piece) const {
    using P = Piece<S, kElements>;
    const std::int64_t begin = piece * kElements;
    if (aligned)
      P::at(to + begin) = P::at(from + source(begin));
    else
      for (std::int64_t i = begin; i < begin + kElements && i < count; ++i) to[i] = from[source(i)];
  }
};

/// Elements of the rows, from all parts that have them.
template <class S>
struct JoinColumns {
  static constexpr int kElements = kPiece<S>;

  const S* from;
  S* to;
  ColumnShares of;
  std::int64_t count;
  bool aligned;  ///< and no piece crosses the end of a share

  /// The first part's of N neighbouring elements, and how many parts have them.
  struct Source {
    const S* first;
    std::int64_t copies;
  };
  STOWAGE_PORTABLE Source source(std::int64_t i) const {
    const std::int64_t row = i / of.width, in_row = i - row * of.width;
    const int block = ColumnShares::block(in_row, of.widths);
    const std::int64_t column = in_row - ColumnShares::before(block, of.widths);
    const std::int64_t wide = ColumnShares::pick(block, of.shares);
    const std::int64_t copies = ColumnShares::pick(block, of.copies);
    const std::int64_t share = column / wide, part = share * copies;
    return {from + (part * of.rows + row) * of.part_width + ColumnShares::before(block, of.shares) +
                column - share * wide,
            copies};
  }
  template <int N>
  STOWAGE_PORTABLE void join(std::int64_t i) const {
    using A = execution::Accumulation<S>;
    using P = Piece<S, N>;
    const Source of_parts = source(i);
    P result = P::at(of_parts.first);
    if (of_parts.copies > 1) {
      A sums[N];
      for (int k = 0; k < N; ++k) sums[k] = static_cast<A>(result.values[k]);
      for (std::int64_t copy = 1; copy < of_parts.copies; ++copy) {
        const P more = P::at(of_parts.first + copy * of.rows * of.part_width);
        for (int k = 0; k < N; ++k) sums[k] += static_cast<A>(more.values[k]);
      }
      for (int k = 0; k < N; ++k) result.values[k] = static_cast<S>(sums[k]);
    }
    P::put(to + i, result);
  }
  STOWAGE_PORTABLE void operator()(std::int64_t piece) const {
    const std::int64_t begin = piece * kElements;
    if (aligned)
      join<kElements>(begin);
    else
      for (std::int64_t i = begin; i < begin + kElements && i < count; ++i) join<1>(i);
  }
};

}  // namespace stowage::kernels::detail
