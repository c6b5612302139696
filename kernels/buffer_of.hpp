#pragma once

#include "kernels/launch.hpp"

/// An operand that is one buffer of a tensor which has several: the payload of a quantised tensor,
/// or its scale. Such a tensor is saved, moved and made again as one; who binds both buffers of it
/// to an operator uses it once.
namespace stowage::kernels {

template <class T>
struct BufferOf {
  BufferOf() = default;
  BufferOf(T of, int index = 0,  // NOLINT(google-explicit-constructor): the first one
           execution::Range some = {})
      : whole(of), buffer(index), rows(some) {}

  T whole = {};
  int buffer = 0;
  execution::Range rows = {};  ///< of the first one, used in place; the range that means all: all
};

namespace detail {

template <class T, class Element>
struct BufferOperand {
  using Type = Of<T, Element>;  ///< a tensor of its own: in a program alone it is a buffer
};
template <class Element>
struct BufferOperand<execution::Tensor, Element> {
  using Type = BufferOf<execution::Tensor>;
};
template <class Element>
struct BufferOperand<UseIndex, Element> {
  using Type = BufferOf<UseIndex>;
};
template <class Element>
struct BufferOperand<execution::View, Element> {
  using Type = BufferOf<execution::View>;
};

}  // namespace detail

/// A member of Operands<T>.
template <class T, class Element>
using BufferOfType = typename detail::BufferOperand<T, Element>::Type;

inline BufferOf<UseIndex> add_use(std::vector<execution::Use>& uses, const Spec& spec,
                                  const BufferOf<execution::Tensor>& operand) {
  return {add_use(uses, spec, RowsOf(operand.whole, operand.rows)).whole, operand.buffer,
          operand.rows};
}
inline BufferOf<execution::View> view_of(const BufferOf<UseIndex>& operand,
                                         execution::Views views) {
  return {view_of(operand.whole, views), operand.buffer, operand.rows};
}
/// As a tensor that has this buffer alone.
void check(const Operands& operands, const Spec& spec, const BufferOf<execution::View>& operand);

template <class Element>
void bind(std::string_view op, const Spec& spec, const BufferOf<execution::View>& operand,
          Element*& pointer) {
  detail::bind(op, spec, operand.whole, pointer);
  if (pointer) pointer = operand.whole.as<Element>(static_cast<std::size_t>(operand.buffer));
}

}  // namespace stowage::kernels
