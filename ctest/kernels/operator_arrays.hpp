#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "ctest/kernels/support.hpp"
#include "kernels/operator.hpp"

/// Arrays for the operands of an operator, as its declaration says them, and runs on the host.
namespace stowage::kernels::test {

template <class Op>
using Arrays = OperandsOf<Op, Array>;

/// Columns around those of an operand: what is written has 7 there, what is read NaN.
inline constexpr std::int64_t kColumnsBefore = 3, kColumnsBehind = 8;

inline Values values(const ColumnsOf<Array>& columns) {
  const Values all = columns.whole.values();
  const auto width = static_cast<std::size_t>(columns.whole.view().extent(1));
  const auto first = static_cast<std::size_t>(columns.first);
  Values some;
  for (std::size_t row = 0; row < all.size(); row += width)
    for (std::size_t j = first; j < first + static_cast<std::size_t>(columns.count); ++j)
      some.push_back(all[row + j]);
  return some;
}

/// The same of columns that were stored; those around them must be as they were made.
inline Values stored(const ColumnsOf<Array>& columns) {
  const Values all = columns.whole.values();
  const std::int64_t width = columns.whole.view().extent(1);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::int64_t j = static_cast<std::int64_t>(i) % width - columns.first;
    if (j < 0 || j >= columns.count) {
      EXPECT_EQ(all[i], 7) << "column " << j << " was written";
    }
  }
  return values(columns);
}

inline void set(const Array& array, const Values& values) { Array(array).set(values); }
inline void set(const ColumnsOf<Array>& columns, const Values& values) {
  Values all = columns.whole.values();
  const auto width = static_cast<std::size_t>(columns.whole.view().extent(1));
  const auto first = static_cast<std::size_t>(columns.first);
  const auto count = static_cast<std::size_t>(columns.count);
  for (std::size_t i = 0; i < values.size(); ++i)
    all[i / count * width + first + i % count] = values[i];
  set(columns.whole, all);
}

namespace detail {

inline void make(const Spec& spec, Array& array, std::int64_t) {
  if (!spec.present) return;
  array = spec.workspace ? workspace(static_cast<std::size_t>(spec.shape[0]))
                         : Array(spec.dtype, spec.shape, spec.name);
}
inline void make(const Spec& spec, ColumnsOf<Array>& columns, std::int64_t before) {
  const std::int64_t rows = spec.shape[0], count = spec.shape[1];
  const std::int64_t width = before + count + kColumnsBehind;
  const double around = spec.access == execution::Access::read ? NAN : 7;
  const Values all(static_cast<std::size_t>(rows * width), around);
  columns = {Array(spec.dtype, {rows, width}, all, spec.name), before, count};
}

inline std::int64_t elements(const Spec& spec) {
  std::int64_t count = 1;
  for (const std::int64_t extent : spec.shape) count *= extent;
  return count;
}

// The same values in the dtype and with the room of another spec.
inline Array in_type(const Spec& spec, const Array& from) {
  if (!from.view()) return {};
  if (spec.workspace) return workspace(static_cast<std::size_t>(spec.shape[0]));
  return {spec.dtype, from.view().buffer().shape, from.values(), spec.name};
}
inline ColumnsOf<Array> in_type(const Spec& spec, const ColumnsOf<Array>& from) {
  return {in_type(spec, from.whole), from.first, from.count};
}

template <class At>
View view_of(const Array& array, At& at) {
  return at(array);
}
template <class At>
Columns view_of(const ColumnsOf<Array>& columns, At& at) {
  return {at(columns.whole), columns.first, columns.count};
}

}  // namespace detail

/// Arrays for an operator: what it reads or adds to is random, what it stores is poisoned, and so
/// are integers until a test sets them.
template <Operator Op>
Arrays<Op> make_arrays(const Op& op, Random& random, std::int64_t columns_before = kColumnsBefore) {
  require_each_once(op);
  Arrays<Op> arrays;
  op.each(
      [&](const Spec& spec, auto& one) {
        detail::make(spec, one, columns_before);
        if (spec.present && spec.access != execution::Access::write &&
            execution::epsilon(spec.dtype) > 0)
          set(one, random.normal(detail::elements(spec)));
      },
      arrays);
  return arrays;
}

/// The same values for the operator with another storage type.
template <Operator Op>
Arrays<Op> in_type_of(const Op& op, const Arrays<Op>& arrays) {
  Arrays<Op> made;
  op.each([](const Spec& spec, const auto& from, auto& to) { to = detail::in_type(spec, from); },
          arrays, made);
  return made;
}

/// The views that `at` gives for arrays.
template <Operator Op, class At>
OperandsOf<Op, View> views(const Op& op, const Arrays<Op>& arrays, At& at) {
  OperandsOf<Op, View> views;
  op.each([&](const Spec&, const auto& array, auto& view) { view = detail::view_of(array, at); },
          arrays, views);
  return views;
}

/// Enqueues an operator on them.
template <Operator Op, class At>
void enqueue(Queue& queue, const Op& op, const Arrays<Op>& arrays, At& at) {
  op.run(queue, views(op, arrays, at));
}

/// Runs an operator on the host.
template <Operator Op>
void run(const Op& op, const Arrays<Op>& arrays) {
  const auto here = [](const Array& array) { return array.view(); };
  on_queue([&](Queue& queue) { enqueue(queue, op, arrays, here); });
}

}  // namespace stowage::kernels::test
