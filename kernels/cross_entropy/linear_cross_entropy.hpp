#pragma once

#include <cstddef>
#include <cstdint>

#include "execution/op.hpp"
#include "kernels/matrix.hpp"

namespace stowage::kernels {

/// The output projection fused with the cross-entropy loss and both gradients:
///
///   logits = h w^T,  losses_t = logsumexp(logits_t) - logits_t[target_t]
///   dlogits = (softmax(logits) - onehot(target)) * scale,  dh = dlogits w,  dw = dlogits^T h
///
/// h, dh (n, D) and w (V, D) of one storage dtype; targets (n) int32 in [0, V), or negative for a
/// token that counts nothing (its loss and its row of dh are 0). scale (1), losses (n) and dw
/// (V, D) have the accumulation dtype; dw is stored or, with `accumulate`, added to. Works through
/// chunks of rows, so the logits of all tokens never exist; logits and softmax are kept in the
/// accumulation dtype, dlogits too on the host; a GPU rounds dlogits to the storage dtype, because
/// both gradients are products on tensor cores.
void linear_cross_entropy(execution::Queue& queue, const execution::View& h,
                          const execution::View& w, const execution::View& targets,
                          const execution::View& scale, const execution::View& losses,
                          const execution::View& dh, const execution::View& dw,
                          const execution::View& workspace, bool accumulate);

/// The losses alone, for evaluation; and, where it is asked for, hits (n) of their dtype: 1 for a
/// counted token of which no logit is above the target's, else 0.
void linear_cross_entropy_loss(execution::Queue& queue, const execution::View& h,
                               const execution::View& w, const execution::View& targets,
                               const execution::View& losses, const execution::View& workspace,
                               const execution::View& hits = {});

/// Room for the logits of one chunk of rows; the same for both operators.
std::size_t linear_cross_entropy_workspace_bytes(std::int64_t tokens, std::int64_t vocabulary,
                                                 std::int64_t width, execution::Dtype storage);

execution::Cost linear_cross_entropy_cost(std::int64_t tokens, std::int64_t vocabulary,
                                          std::int64_t width, execution::Dtype storage,
                                          bool accumulate);
execution::Cost linear_cross_entropy_loss_cost(std::int64_t tokens, std::int64_t vocabulary,
                                               std::int64_t width, execution::Dtype storage);

/// Host references. h (n, D), w (V, D) and dh (n, D) are rows of any stride; dw (V, D) too.
template <class S>
void linear_cross_entropy_ref(Matrix<const S> h, Matrix<const S> w, const std::int32_t* targets,
                              const execution::Accumulation<S>* scale,
                              execution::Accumulation<S>* losses, Matrix<S> dh,
                              Matrix<execution::Accumulation<S>> dw,
                              execution::Accumulation<S>* workspace, bool accumulate);
template <class S>
void linear_cross_entropy_loss_ref(Matrix<const S> h, Matrix<const S> w,
                                   const std::int32_t* targets, execution::Accumulation<S>* losses,
                                   execution::Accumulation<S>* workspace,
                                   execution::Accumulation<S>* hits = nullptr);

}  // namespace stowage::kernels
