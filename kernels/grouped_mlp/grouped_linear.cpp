#include "kernels/grouped_mlp/grouped_linear.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Cost;

// Weights of an expert without a row are not read.
Cost GroupedLinearForward::cost() const {
  return {product_flops(routed, outputs, inputs),
          bytes(routed * (inputs + outputs), storage) +
              bytes(std::min(experts, routed) * outputs * inputs, storage)};
}

Cost GroupedLinearBackwardInput::cost() const {
  return {product_flops(routed, outputs, inputs),
          bytes(routed * outputs, storage) + bytes(experts * outputs * inputs, storage) +
              passes(accumulate) * bytes(routed * inputs, storage)};
}

Cost GroupedLinearBackwardWeight::cost() const {
  return {
      product_flops(routed, outputs, inputs),
      bytes(routed * (inputs + outputs), storage) +
          passes(accumulate) * bytes(experts * outputs * inputs, execution::accumulation(storage))};
}

STOWAGE_OPERATOR_RUN(GroupedLinearForward)
STOWAGE_OPERATOR_RUN(GroupedLinearBackwardInput)
STOWAGE_OPERATOR_RUN(GroupedLinearBackwardWeight)

}  // namespace stowage::kernels
