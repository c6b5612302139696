#include "kernels/activation/activation.hpp"

#include "kernels/activation/activation_launch.hpp"
#include "kernels/cost.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Cost;

template <class S>
int ActivationForward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return activation::launch(activation::Forward<S>{.kind = kind,
                                                   .rows = rows,
                                                   .columns = columns,
                                                   .x = o.x,
                                                   .row_weight = o.row_weight,
                                                   .y = o.y,
                                                   .valid_rows = valid.of(o.valid_rows)},
                            stream);
}

Cost ActivationForward::cost() const {
  const double flops_per_value = kind == Activation::swiglu ? 6 : 3;
  return {flops_per_value * static_cast<double>(rows * columns),
          bytes(rows * (activation_width(kind, columns) + columns), storage)};
}

template <class S>
int ActivationBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return activation::launch(activation::Backward<S>{.kind = kind,
                                                    .rows = rows,
                                                    .columns = columns,
                                                    .dy = o.dy,
                                                    .x = o.x,
                                                    .row_weight = o.row_weight,
                                                    .dx = o.dx,
                                                    .drow_weight = o.drow_weight,
                                                    .valid_rows = valid.of(o.valid_rows),
                                                    .amax = o.amax},
                            stream);
}

Cost ActivationBackward::cost() const {
  const double flops_per_value = kind == Activation::swiglu ? 14 : 5;
  return {flops_per_value * static_cast<double>(rows * columns),
          bytes(rows * (2 * activation_width(kind, columns) + columns), storage)};
}

STOWAGE_OPERATOR_RUN(ActivationForward)
STOWAGE_OPERATOR_RUN(ActivationBackward)
STOWAGE_LAUNCHES(ActivationForward)
STOWAGE_LAUNCHES(ActivationBackward)

}  // namespace stowage::kernels
