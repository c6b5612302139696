#pragma once

#include <cstddef>
#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// x (n, D) = rows of table (V, D): x[t] = table[tokens[t]]. tokens (n) int32 below V: the loader
/// refuses others before step 1. Rows of negative ones, whose row another rank has, are zero.
void embedding_forward(execution::Queue& queue, const execution::View& tokens,
                       const execution::View& table, const execution::View& x);

/// dtable (V, D) in the accumulation dtype of dx (n, D): dtable[v] = sum of dx[t] with
/// tokens[t] = v, in an order that depends on the number of such t alone (on the host that of t).
/// Negative tokens add nothing.
/// Without `accumulate` rows that no token names become zero; with it
/// they are not touched.
void embedding_backward(execution::Queue& queue, const execution::View& tokens,
                        const execution::View& dx, const execution::View& dtable,
                        const execution::View& workspace, bool accumulate);

/// Room for the positions of each token on a GPU: about 32 bytes for each position and 8 for each
/// row of the table.
std::size_t embedding_backward_workspace_bytes(std::int64_t tokens, std::int64_t vocabulary);

execution::Cost embedding_forward_cost(std::int64_t tokens, std::int64_t width,
                                       execution::Dtype storage);
/// Counts min(n, V) distinct rows of dtable; storing writes all of it.
execution::Cost embedding_backward_cost(std::int64_t tokens, std::int64_t vocabulary,
                                        std::int64_t width, execution::Dtype storage,
                                        bool accumulate);

/// Host references; D is `width`. The backward reads the tokens once per block of columns, so it
/// needs no workspace.
template <class S>
void embedding_forward_ref(std::int64_t tokens, std::int64_t width, const std::int32_t* token,
                           const S* table, S* x);
template <class S>
void embedding_backward_ref(std::int64_t tokens, std::int64_t vocabulary, std::int64_t width,
                            const std::int32_t* token, const S* dx,
                            execution::Accumulation<S>* dtable, bool accumulate);

}  // namespace stowage::kernels
