#pragma once

#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// The linear products of all experts of a layer: rows sorted by expert, one weight matrix each.
///
/// offsets (E + 1) int32 on the device: expert e owns rows [offsets[e], offsets[e + 1]); an expert
/// may own none. x (rows, K), y (rows, M), w (E, M, K), of one storage dtype. Rows from offsets[E]
/// on are neither read nor written.

/// y = x w[e]^T for the rows of each expert.
void grouped_linear_forward(execution::Queue& queue, const execution::View& x,
                            const execution::View& w, const execution::View& offsets,
                            const execution::View& y);

/// dx = dy w[e], added to dx when `accumulate`.
void grouped_linear_backward_input(execution::Queue& queue, const execution::View& dy,
                                   const execution::View& w, const execution::View& offsets,
                                   const execution::View& dx, bool accumulate = false);

/// dw[e] = dy^T x over the rows of each expert; dw (E, M, K) in the accumulation dtype, added to
/// when `accumulate`. An expert without rows: zero when storing, untouched when accumulating.
void grouped_linear_backward_weight(execution::Queue& queue, const execution::View& dy,
                                    const execution::View& x, const execution::View& offsets,
                                    const execution::View& dw, bool accumulate);

/// Costs with `rows` routed rows: 2 rows M K flops each.
execution::Cost grouped_linear_forward_cost(std::int64_t rows, std::int64_t experts,
                                            std::int64_t outputs, std::int64_t inputs,
                                            execution::Dtype storage);
execution::Cost grouped_linear_backward_input_cost(std::int64_t rows, std::int64_t experts,
                                                   std::int64_t outputs, std::int64_t inputs,
                                                   execution::Dtype storage, bool accumulate);
execution::Cost grouped_linear_backward_weight_cost(std::int64_t rows, std::int64_t experts,
                                                    std::int64_t outputs, std::int64_t inputs,
                                                    execution::Dtype storage, bool accumulate);

/// Host references.
template <class S>
void grouped_linear_forward_ref(std::int64_t experts, std::int64_t outputs, std::int64_t inputs,
                                const S* x, const S* w, const std::int32_t* offsets, S* y);
template <class S>
void grouped_linear_backward_input_ref(std::int64_t experts, std::int64_t outputs,
                                       std::int64_t inputs, const S* dy, const S* w,
                                       const std::int32_t* offsets, S* dx, bool accumulate);
template <class S>
void grouped_linear_backward_weight_ref(std::int64_t experts, std::int64_t outputs,
                                        std::int64_t inputs, const S* dy, const S* x,
                                        const std::int32_t* offsets, execution::Accumulation<S>* dw,
                                        bool accumulate);

}  // namespace stowage::kernels
