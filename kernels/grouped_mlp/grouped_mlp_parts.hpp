#pragma once

#include "kernels/grouped_mlp/grouped_mlp.hpp"

/// The fused operators by their parts: how the host runs them, and a GPU where the fused kernels do
/// not serve. `run` of an operator on its operands gives 0, or the rest is left out.
namespace stowage::kernels::detail {

template <class S>
int each_part(const GroupedFc1Forward& op, const OperandsOf<GroupedFc1Forward, Pointers<S>>& o,
              auto&& run) {
  const int code = run(op.product(), OperandsOf<GroupedLinearForward, Pointers<S>>{
                                         .x = o.x, .w = o.w1, .offsets = o.offsets, .y = o.h});
  if (code != 0) return code;
  return run(op.activation(),
             OperandsOf<ActivationForward, Pointers<S>>{
                 .x = o.h, .row_weight = o.row_weight, .y = o.a, .valid_rows = o.offsets});
}

/// g has the extents of a, and waits there until the gradient is made of it.
template <class S>
int each_part(const GroupedFc2BackwardInput& op,
              const OperandsOf<GroupedFc2BackwardInput, Pointers<S>>& o, auto&& run) {
  int code = run(op.product(), OperandsOf<GroupedLinearBackwardInput, Pointers<S>>{
                                   .dy = o.dy, .w = o.w2, .offsets = o.offsets, .dx = o.a});
  if (code != 0) return code;
  code =
      run(op.activation(), OperandsOf<ActivationBackward, Pointers<S>>{.dy = o.a,
                                                                       .x = o.h,
                                                                       .row_weight = o.row_weight,
                                                                       .dx = o.dh,
                                                                       .drow_weight = o.drow_weight,
                                                                       .valid_rows = o.offsets,
                                                                       .amax = {}});
  if (code != 0) return code;
  return run(op.activation_again(),
             OperandsOf<ActivationForward, Pointers<S>>{
                 .x = o.h, .row_weight = o.row_weight, .y = o.a, .valid_rows = o.offsets});
}

}  // namespace stowage::kernels::detail
