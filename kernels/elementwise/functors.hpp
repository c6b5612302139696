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

/// Elements of rows of `count`, which may be parts of wider rows on either side, rounded to the
/// type that they get.
template <class From, class To>
struct CopyRows {
  const From* from;
  To* to;
  std::int64_t count, from_stride, to_stride;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    const std::int64_t row = i / count, column = i - row * count;
    const From value = from[row * from_stride + column];
    if constexpr (std::is_same_v<From, To>)
      to[row * to_stride + column] = value;
    else
      to[row * to_stride + column] = static_cast<To>(value);
  }
};

/// Rows of blocks of columns, and the parts of them.
struct ColumnShares {
  std::int64_t rows, width, part_width;
  std::int64_t widths[3], shares[3], copies[3];  ///< of each block; shares: columns of one part
};

/// Element i of the parts (p, rows, part_width).
template <class S>
struct SplitColumns {
  const S* from;
  S* to;
  ColumnShares of;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    const std::int64_t row = i / of.part_width % of.rows, part = i / of.part_width / of.rows;
    std::int64_t column = i % of.part_width, begin = 0;
    for (int b = 0; b < 3; ++b) {
      if (column < of.shares[b]) {
        column += begin + part / of.copies[b] * of.shares[b];
        break;
      }
      column -= of.shares[b];
      begin += of.widths[b];
    }
    to[i] = from[row * of.width + column];
  }
};

/// Element i of the rows, from all parts that have it.
template <class S>
struct JoinColumns {
  const S* from;
  S* to;
  ColumnShares of;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    const std::int64_t row = i / of.width;
    std::int64_t column = i % of.width, begin = 0;
    int b = 0;
    for (; column >= of.widths[b]; ++b) {
      column -= of.widths[b];
      begin += of.shares[b];
    }
    const std::int64_t part = column / of.shares[b] * of.copies[b];
    const S* first = from + (part * of.rows + row) * of.part_width + begin + column % of.shares[b];
    if (of.copies[b] == 1) {
      to[i] = *first;
      return;
    }
    using A = execution::Accumulation<S>;
    A sum = static_cast<A>(*first);
    for (std::int64_t copy = 1; copy < of.copies[b]; ++copy)
      sum += static_cast<A>(first[copy * of.rows * of.part_width]);
    to[i] = static_cast<S>(sum);
  }
};

}  // namespace stowage::kernels::detail
