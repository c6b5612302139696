#pragma once

#include <cstddef>
#include <cstdint>

#include "execution/op.hpp"
#include "kernels/matrix.hpp"
#include "kernels/norm/group_shares.hpp"

namespace stowage::kernels {

/// The gated norm of a Mamba-2 mixer (arXiv 2405.21060; RMSNormGated with norm_before_gate false):
///
///   v = y * silu(z),  out = v * rstd * w,  rstd = 1 / sqrt(mean(v^2) + eps)
///
/// with one mean for each of the `groups` equal parts of a row. y, out (n, d_inner), z d_inner
/// columns of a wider tensor, w (d_inner), all of one storage dtype.
/// @param shares if ranks share a group: d_inner is this rank's part of it, and groups is 1
void gated_rmsnorm_forward(execution::Queue& queue, const execution::View& y, const Columns& z,
                           const execution::View& w, const execution::View& out,
                           std::int64_t groups, double eps, const GroupShares& shares = {});

/// Gradient of the above; rstd is computed again from y and z, or from shares. dy (n, d_inner) and
/// dz (columns) are stored, dw (d_inner) in the accumulation dtype is stored or, with `accumulate`,
/// added to.
void gated_rmsnorm_backward(execution::Queue& queue, const execution::View& dout,
                            const execution::View& y, const Columns& z, const execution::View& w,
                            const execution::View& dy, const Columns& dz, const execution::View& dw,
                            const execution::View& workspace, std::int64_t groups, double eps,
                            bool accumulate, const GroupShares& shares = {});

/// Room for one partial dw per block of rows.
std::size_t gated_rmsnorm_backward_workspace_bytes(std::int64_t rows, std::int64_t width,
                                                   execution::Dtype storage);

execution::Cost gated_rmsnorm_forward_cost(std::int64_t rows, std::int64_t width,
                                           execution::Dtype storage);
execution::Cost gated_rmsnorm_backward_cost(std::int64_t rows, std::int64_t width,
                                            execution::Dtype storage);

/// Host references. Rows and d_inner are those of z; y, out, dout and dy are dense.
template <class S>
void gated_rmsnorm_forward_ref(const S* y, Matrix<const S> z, const S* w, S* out,
                               std::int64_t groups, double eps,
                               const GroupSharePointers<execution::Accumulation<S>>& shares = {});
template <class S>
void gated_rmsnorm_backward_ref(const S* dout, const S* y, Matrix<const S> z, const S* w, S* dy,
                                Matrix<S> dz, execution::Accumulation<S>* dw,
                                execution::Accumulation<S>* workspace, std::int64_t groups,
                                double eps, bool accumulate,
                                const GroupSharePointers<execution::Accumulation<S>>& shares = {});

}  // namespace stowage::kernels
