#pragma once

#include <cstddef>
#include <cstdint>

#include "execution/op.hpp"
#include "kernels/matrix.hpp"

namespace stowage::kernels {

/// Widths W of the convolution of a Mamba-2 mixer (arXiv 2405.21060): its taps.
inline constexpr std::int64_t kConv1dMinWidth = 2, kConv1dMaxWidth = 4;
/// Tokens before a segment that are handed to it, whatever the width: taps that a narrower
/// convolution lacks are zero.
inline constexpr std::int64_t kConv1dHalo = kConv1dMaxWidth - 1;

/// Where tokens of the first document lie before these, on another rank or in another segment.
struct Conv1dHalo {
  execution::View rows;  ///< (3, C), x of the three tokens before the first, zero where they are
                         ///< of another document; absent: none of them is
  execution::View
      gradient;  ///< (3, C), backward: written, the share of these tokens; may be absent
};

/// Causal depthwise convolution of width W, 2 to 4, and SiLU, for each channel c:
///
///   y_t = silu(b + sum_{k=0..W-1} w_k x_{t-W+1+k}),  x_s = 0 for s in another document than t
///
/// so w[:, W - 1] is the tap of the current token. x: C columns of a wider tensor (n, *), w (C, W),
/// b (C), y (n, C), all of one storage dtype; seq_idx (n) int32, the document of each token,
/// non-decreasing. Summed in the accumulation dtype, rounded once.
void conv1d_silu_forward(execution::Queue& queue, const Columns& x, const execution::View& w,
                         const execution::View& b, const execution::View& seq_idx,
                         const execution::View& y, const Conv1dHalo& halo = {});

struct Conv1dBackwardOperands {
  execution::View dy;       ///< (n, C)
  Columns x;                ///< (n, C)
  execution::View w, b;     ///< (C, W) and (C)
  execution::View seq_idx;  ///< (n) int32
  Columns dx;               ///< as x
  execution::View dw, db;   ///< (C, W) and (C) of the accumulation dtype
  execution::View workspace;
};

/// Gradient of the above; the sum before SiLU is computed again from x. dx is stored; dw and db are
/// stored or, with `accumulate`, added to.
void conv1d_silu_backward(execution::Queue& queue, const Conv1dBackwardOperands& views,
                          bool accumulate, const Conv1dHalo& halo = {});

/// Room for the partial dw and db of each block of tokens, at any width.
std::size_t conv1d_silu_backward_workspace_bytes(std::int64_t tokens, std::int64_t channels,
                                                 execution::Dtype storage);

execution::Cost conv1d_silu_forward_cost(std::int64_t tokens, std::int64_t channels,
                                         execution::Dtype storage,
                                         std::int64_t width = kConv1dMaxWidth);
execution::Cost conv1d_silu_backward_cost(std::int64_t tokens, std::int64_t channels,
                                          execution::Dtype storage,
                                          std::int64_t width = kConv1dMaxWidth);

/// Host references. Tokens and channels are those of x; y, dy, halo and dhalo are dense.
/// w and dw have `width` taps a channel.
template <class S>
void conv1d_silu_forward_ref(Matrix<const S> x, const S* w, const S* b, const std::int32_t* seq_idx,
                             S* y, const S* halo = nullptr, std::int64_t width = kConv1dMaxWidth);
template <class S>
void conv1d_silu_backward_ref(const S* dy, Matrix<const S> x, const S* w, const S* b,
                              const std::int32_t* seq_idx, Matrix<S> dx,
                              execution::Accumulation<S>* dw, execution::Accumulation<S>* db,
                              execution::Accumulation<S>* workspace, bool accumulate,
                              const S* halo = nullptr, S* dhalo = nullptr,
                              std::int64_t width = kConv1dMaxWidth);

}  // namespace stowage::kernels
