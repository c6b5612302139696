#pragma once

#include <cstddef>
#include <cstdint>

#include "execution/op.hpp"
#include "kernels/activation/activation.hpp"

namespace stowage::kernels {

/// The products of an MLP of experts with the activation in the product's epilogue. Rows, weights
/// and offsets as in grouped_linear.hpp; F is the width of the activated rows, H = F or, for
/// swiglu, 2 F (gate first) of the rows before it. Every stored value but drow_weight, which
/// is summed by tiles, has the bits of the product and of the activation apart: what is stored is
/// rounded before it is used. Rows from offsets[E] on are neither read nor written.

/// h (rows, H) = x (rows, D) w1[e]^T and a (rows, F) = row_weight * act(h); w1 (E, H, D).
/// row_weight (rows) in the accumulation dtype may be absent: 1.
void grouped_fc1_forward(execution::Queue& queue, Activation kind, const execution::View& x,
                         const execution::View& w1, const execution::View& offsets,
                         const execution::View& row_weight, const execution::View& h,
                         const execution::View& a);

struct GroupedFc2BackwardOperands {
  execution::View dy;                ///< (rows, D)
  execution::View w2;                ///< (E, D, F)
  execution::View offsets;           ///< (E + 1) int32
  execution::View row_weight = {};   ///< (rows), accumulation dtype; may be absent
  execution::View h;                 ///< (rows, H)
  execution::View dh;                ///< (rows, H)
  execution::View a;                 ///< (rows, F)
  execution::View drow_weight = {};  ///< (rows), accumulation dtype; there if row_weight is
  execution::View workspace;
};

/// The gradient through w2 (E, D, F) and the activation, with g = dy (rows, D) w2[e] in between:
/// dh (rows, H) = row_weight * act'(h) g, drow_weight (rows) = sum over columns of g act(h), and a
/// (rows, F) = row_weight * act(h) once more, for the gradient of w2. drow_weight is summed in an
/// order that depends on F, the rows of its expert and the row's place among them.
void grouped_fc2_backward_input(execution::Queue& queue, Activation kind,
                                const GroupedFc2BackwardOperands& views);

/// Scratch of grouped_fc2_backward_input for `rows` routed rows; `columns` is F.
std::size_t grouped_fc2_backward_input_workspace_bytes(std::int64_t rows, std::int64_t columns,
                                                       execution::Dtype storage);

/// Costs: the product's, and those of the activation less what is not read or written again.
execution::Cost grouped_fc1_forward_cost(Activation kind, std::int64_t rows, std::int64_t experts,
                                         std::int64_t columns, std::int64_t width,
                                         execution::Dtype storage);
execution::Cost grouped_fc2_backward_input_cost(Activation kind, std::int64_t rows,
                                                std::int64_t experts, std::int64_t columns,
                                                std::int64_t width, execution::Dtype storage);

/// Host references, made of those of the parts; absent operands are null.
template <class S>
void grouped_fc1_forward_ref(Activation kind, std::int64_t rows, std::int64_t experts,
                             std::int64_t columns, std::int64_t width, const S* x, const S* w1,
                             const std::int32_t* offsets,
                             const execution::Accumulation<S>* row_weight, S* h, S* a);
template <class S>
void grouped_fc2_backward_input_ref(Activation kind, std::int64_t rows, std::int64_t experts,
                                    std::int64_t columns, std::int64_t width, const S* dy,
                                    const S* w2, const std::int32_t* offsets,
                                    const execution::Accumulation<S>* row_weight, const S* h, S* dh,
                                    S* a, execution::Accumulation<S>* drow_weight);

}  // namespace stowage::kernels
