#include "drivers/bench_kernels/operator_case.hpp"

#include <algorithm>

namespace stowage::drivers::bench {

using execution::Access;
using kernels::Spec;

namespace {

Role role_of(const Spec& spec) {
  if (spec.workspace) return Role::workspace;
  switch (spec.access) {
    case Access::read:
      return Role::input;
    case Access::write:
      return Role::output;
    case Access::update:
      return Role::update;
  }
  return Role::input;
}

}  // namespace

void OperatorMemory::place(const Spec& spec, Operand*& operand, execution::View& view) {
  if (!spec.present) return;
  const Role role = role_of(spec);
  operand = &operands_.emplace_back(processor_, spec.name, role, spec.dtype, spec.shape);
  view = bound_.emplace_back(*operand);
  const bool holds_values = role == Role::input || role == Role::update;
  if (holds_values && execution::epsilon(spec.dtype) > 0) operand->fill_normal(seed_, 0, 1);
}

void OperatorMemory::place(const Spec& spec, kernels::ColumnsOf<Operand*>& operand,
                           kernels::Columns& view) {
  Spec whole = spec;
  whole.shape[1] = std::max(stride_, spec.shape[1]);
  place(whole, operand.whole, view.view);
  operand.first = view.first = 0;
  operand.count = view.count = spec.shape[1];
}

std::vector<Operand*> OperatorMemory::all() {
  std::vector<Operand*> all;
  for (Operand& one : operands_) all.push_back(&one);
  return all;
}

}  // namespace stowage::drivers::bench
