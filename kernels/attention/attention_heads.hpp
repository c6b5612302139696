#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Where the rows of a matrix of heads lie, in elements; the P columns of a head are neighbours.
struct HeadStrides {
  std::int64_t row = 0;   ///< from a token to the next
  std::int64_t head = 0;  ///< from a head to the next
  /// From a sequence to the next where all have one length; 0: they follow one another.
  std::int64_t batch = 0;

  /// The batch stride that is meant for sequences of `length` tokens.
  constexpr std::int64_t batch_of(std::int64_t length) const {
    return batch != 0 ? batch : length * row;
  }
};

/// Extents of a matrix of heads: `sequences` of `length` tokens; packed documents are one sequence.
struct HeadExtents {
  std::int64_t sequences = 1, length = 0, heads = 0, head_dim = 0;

  std::int64_t tokens() const { return sequences * length; }
};

/// Elements from the first to behind the last.
constexpr std::int64_t head_span(const HeadExtents& e, const HeadStrides& s) {
  if (e.sequences * e.length * e.heads == 0) return 0;
  return (e.sequences - 1) * s.batch_of(e.length) + (e.length - 1) * s.row +
         (e.heads - 1) * s.head + e.head_dim;
}

/// Whether no two rows of heads share an element, so that they may be written.
constexpr bool heads_are_disjoint(const HeadExtents& e, const HeadStrides& s) {
  std::array<std::pair<std::int64_t, std::int64_t>, 3> steps{
      {{s.row, e.length}, {s.head, e.heads}, {s.batch_of(e.length), e.sequences}}};
  std::sort(steps.begin(), steps.end());
  std::int64_t span = e.head_dim;  // of what the smaller strides reach
  for (const auto& [stride, count] : steps) {
    if (count <= 1) continue;
    if (stride < span) return false;
    span += (count - 1) * stride;
  }
  return true;
}

/// Heads in host memory, read or written in place. It owns nothing.
template <class T>
struct HeadMatrix {
  T* data = nullptr;
  HeadExtents extents;
  HeadStrides strides;

  /// Some tokens of one head of a sequence.
  constexpr Matrix<T> rows(std::int64_t sequence, std::int64_t first, std::int64_t count,
                           std::int64_t head) const {
    return {data + sequence * strides.batch_of(extents.length) + first * strides.row +
                head * strides.head,
            count, extents.head_dim, strides.row};
  }
  constexpr operator HeadMatrix<const T>() const requires(!std::is_const_v<T>) {
    return {data, extents, strides};
  }
};

/// Operands that are heads inside a tensor, used in place: element p of head h of token t lies
/// `first + t * strides.row + h * strides.head + p` elements from the tensor's first, and of
/// sequence b of equal ones, t counted in it, `b * strides.batch` more.
template <class T>
struct HeadsOf {
  T whole = {};
  std::int64_t first = 0;
  HeadStrides strides = {};
};

/// Heads side by side in columns of a matrix (rows, width) from `first` on.
template <class T>
HeadsOf<T> heads_in_columns(T whole, std::int64_t first, std::int64_t width,
                            std::int64_t head_dim) {
  return {whole, first, {width, head_dim, 0}};
}

namespace detail {

template <class T, class Element>
struct HeadsOperand {
  using Type = HeadsOf<T>;
};
template <class Element>
struct HeadsOperand<Visits, Element> {
  using Type = Visits;
};
template <class S, class Element>
struct HeadsOperand<Pointers<S>, Element> {
  using Type = HeadMatrix<typename ElementOf<S, Element>::Type>;
};

}  // namespace detail

template <class T, class Element>
using HeadsOfType = typename detail::HeadsOperand<T, Element>::Type;
template <class T>
using InHeads = HeadsOfType<T, const Storage>;
template <class T>
using OutHeads = HeadsOfType<T, Storage>;

/// The shape of their spec.
inline std::vector<std::int64_t> shape_of(const HeadExtents& e) {
  return {e.sequences, e.length, e.heads, e.head_dim};
}
inline HeadExtents extents_of(const Spec& spec) {
  return {spec.shape[0], spec.shape[1], spec.shape[2], spec.shape[3]};
}

void check(const Operands& operands, const Spec& spec, const HeadsOf<execution::View>& heads);

inline HeadsOf<UseIndex> add_use(std::vector<execution::Use>& uses, const Spec& spec,
                                 const HeadsOf<execution::Tensor>& heads) {
  return {add_use(uses, spec, heads.whole), heads.first, heads.strides};
}
inline HeadsOf<execution::View> view_of(const HeadsOf<UseIndex>& heads, execution::Views views) {
  return {view_of(heads.whole, views), heads.first, heads.strides};
}

}  // namespace stowage::kernels
