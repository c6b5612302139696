#include "kernels/activation/sigmoid.hpp"

#include "kernels/activation/sigmoid_launch.hpp"
#include "kernels/cost.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Cost;

template <class S>
int SigmoidGateForward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return sigmoids::launch(
      sigmoids::Forward<S>{.elements = rows * columns, .x = o.x, .gate = o.gate, .y = o.y}, stream);
}

Cost SigmoidGateForward::cost() const {
  return {4.0 * static_cast<double>(rows * columns), 3 * bytes(rows * columns, storage)};
}

template <class S>
int SigmoidGateBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return sigmoids::launch(sigmoids::Backward<S>{.elements = rows * columns,
                                                .dy = o.dy,
                                                .x = o.x,
                                                .gate = o.gate,
                                                .dx = o.dx,
                                                .dgate = o.dgate},
                          stream);
}

Cost SigmoidGateBackward::cost() const {
  return {8.0 * static_cast<double>(rows * columns), 5 * bytes(rows * columns, storage)};
}

template <class S>
int SigmoidForward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return sigmoids::launch_sigmoid(rows, o.x, o.y, stream);
}

Cost SigmoidForward::cost() const {
  return {3.0 * static_cast<double>(rows), 2 * bytes(rows, execution::accumulation(storage))};
}

template <class S>
int SigmoidBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return sigmoids::launch_sigmoid_backward(rows, o.dy, o.y, o.dx, stream);
}

Cost SigmoidBackward::cost() const {
  return {3.0 * static_cast<double>(rows), 3 * bytes(rows, execution::accumulation(storage))};
}

STOWAGE_OPERATOR_RUN(SigmoidForward)
STOWAGE_OPERATOR_RUN(SigmoidBackward)
STOWAGE_OPERATOR_RUN(SigmoidGateForward)
STOWAGE_OPERATOR_RUN(SigmoidGateBackward)

}  // namespace stowage::kernels
