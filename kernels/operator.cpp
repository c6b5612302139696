#include "kernels/operator.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "execution/error.hpp"

namespace stowage::kernels {

using execution::Access;
using execution::Dtype;
using execution::Range;
using execution::Tensor;
using execution::Use;
using execution::View;

Spec in(const char* name, Dtype dtype, std::vector<std::int64_t> shape) {
  return {name, Access::read, dtype, std::move(shape)};
}

Spec out(const char* name, Dtype dtype, std::vector<std::int64_t> shape) {
  return {name, Access::write, dtype, std::move(shape)};
}

Spec sum(const char* name, bool accumulate, Dtype dtype, std::vector<std::int64_t> shape) {
  return {name, accumulate ? Access::update : Access::write, dtype, std::move(shape)};
}

Spec workspace(std::size_t bytes) {
  return {"workspace", Access::write, Dtype::uint8, {static_cast<std::int64_t>(bytes)},
          bytes > 0,   true};
}

namespace {

std::int64_t elements(const Spec& spec) {
  return execution::BufferInfo{"", spec.dtype, spec.shape}.elements();
}

}  // namespace

void check(const Operands& operands, const Spec& spec, const View& view) {
  if (spec.workspace) return operands.workspace(view, static_cast<std::size_t>(spec.shape[0]));
  if (!spec.present) return operands.absent(view, spec.name);
  const bool fits =
      view && view.dtype() == spec.dtype && view.buffer().elements() == elements(spec);
  if (!spec.any_shape || !fits) operands.check(view, spec.name, spec.dtype, spec.shape);
}

void check(const Operands& operands, const Spec& spec, const Columns& columns) {
  operands.check(columns, spec.name, spec.dtype, spec.shape[0], spec.shape[1]);
}

void check(const Operands& operands, const Spec& spec, const RowsOf<View>& rows) {
  if (!rows.some || !spec.present) return check(operands, spec, rows.view);
  operands.check(rows.view, spec.name, spec.dtype, {elements(spec)});
}

void require_none(const Operands& operands, const std::string& fault) {
  operands.require(fault.empty(), fault);
}

void throw_other_type(std::string_view op, const Spec& spec) {
  throw execution::Error(
      execution::Exit::runtime,
      fmt::format("{}: {} has another type in Operands<T> than in each()", op, spec.name));
}

void throw_other_operands(std::string_view op) {
  throw execution::Error(execution::Exit::runtime,
                         fmt::format("{}: each() visits other operands than Operands<T> has", op));
}

UseIndex add_use(std::vector<Use>& uses, const Spec& spec, Tensor tensor, Range elements) {
  if (!tensor) return {};
  const auto use = std::ranges::find_if(uses, [&](const Use& earlier) {
    return !spec.own_use && earlier.tensor == tensor && earlier.range == elements;
  });
  const auto index = static_cast<int>(use - uses.begin());
  if (use == uses.end())
    uses.push_back({tensor, spec.access, elements});
  else if (use->access != spec.access)
    use->access = Access::update;
  return {index};
}

ColumnsOf<UseIndex> add_use(std::vector<Use>& uses, const Spec& spec,
                            const ColumnsOf<Tensor>& columns) {
  Spec whole = spec;
  if (columns.beside && spec.access == Access::write) whole.access = Access::update;
  return {add_use(uses, whole, columns.whole), columns.first, columns.count};
}

RowsOf<UseIndex> add_use(std::vector<Use>& uses, const Spec& spec, const RowsOf<Tensor>& rows) {
  if (rows.rows == Range{}) return add_use(uses, spec, rows.whole);
  const std::int64_t row = elements(spec) / spec.shape.front();
  return {add_use(uses, spec, rows.whole, {rows.rows.begin * row, rows.rows.end * row}), rows.rows};
}

Columns view_of(const ColumnsOf<UseIndex>& columns, execution::Views views) {
  return {view_of(columns.whole, views), columns.first, columns.count};
}

RowsOf<View> view_of(const RowsOf<UseIndex>& rows, execution::Views views) {
  return {view_of(rows.whole, views), rows.rows != Range{}};
}

}  // namespace stowage::kernels
