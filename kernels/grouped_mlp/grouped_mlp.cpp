#include "kernels/grouped_mlp/grouped_mlp.hpp"

#include "kernels/cost.hpp"
#include "kernels/grouped_mlp/grouped_layout.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

namespace {

template <class Part, class Op>
Part activation_of(const Op& op) {
  return {.kind = op.kind,
          .rows = op.rows,
          .columns = op.columns,
          .storage = op.storage,
          .weighted = op.weighted,
          .valid = {.counts = op.experts + 1, .index = op.experts}};
}

/// Flops of a part of the rows that hold something.
template <class Part>
double flops_of(Part part, std::int64_t routed) {
  part.rows = routed;
  return part.cost().flops;
}

}  // namespace

GroupedLinearForward GroupedFc1Forward::product() const {
  return {.rows = rows,
          .routed = routed,
          .experts = experts,
          .outputs = activation_width(kind, columns),
          .inputs = width,
          .storage = storage};
}

ActivationForward GroupedFc1Forward::activation() const {
  return activation_of<ActivationForward>(*this);
}

// The activation reads h from the product, and writes a.
Cost GroupedFc1Forward::cost() const {
  return product().cost() + Cost{flops_of(activation(), routed), bytes(routed * columns, storage)};
}

GroupedLinearBackwardInput GroupedFc2BackwardInput::product() const {
  return {.rows = rows,
          .routed = routed,
          .experts = experts,
          .outputs = width,
          .inputs = columns,
          .storage = storage,
          .accumulate = false};
}

ActivationBackward GroupedFc2BackwardInput::activation() const {
  return activation_of<ActivationBackward>(*this);
}

ActivationForward GroupedFc2BackwardInput::activation_again() const {
  return activation_of<ActivationForward>(*this);
}

std::size_t GroupedFc2BackwardInput::workspace_bytes() const {
  return storage == Dtype::bf16 ? grouped_cuda_fc2_workspace_bytes(rows, columns) : 0;
}

// What the product would write is a here; the activation reads h and writes its gradient.
Cost GroupedFc2BackwardInput::cost() const {
  return product().cost() +
         Cost{flops_of(activation(), routed) + flops_of(activation_again(), routed),
              2 * bytes(routed * activation_width(kind, columns), storage)};
}

STOWAGE_OPERATOR_RUN(GroupedFc1Forward)
STOWAGE_OPERATOR_RUN(GroupedFc2BackwardInput)

}  // namespace stowage::kernels
