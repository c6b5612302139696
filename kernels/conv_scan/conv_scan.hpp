#pragma once

#include "kernels/ssd/ssd.hpp"

namespace stowage::kernels {

/// The parameters of a convolution and a scan, or their gradients: weight (C, W) and bias (C) of
/// the convolution, a_log, d and dt_bias (H) of the scan, C = H P + 2 G N. W is 2 to 4.
struct ConvScanParameters {
  execution::View conv_weight, conv_bias, a_log, d, dt_bias;
};

struct ConvScanForwardOperands {
  Columns xbc, dt;  ///< (n, C) and (n, H)
  ConvScanParameters parameters;
  execution::View seq_idx;         ///< (n) int32
  execution::View convolved = {};  ///< (n, C), for a backward by the two operators; may be absent
  execution::View y;               ///< (n, H P)
  execution::View workspace;
};

struct ConvScanBackwardOperands {
  execution::View dy;  ///< (n, H P)
  Columns xbc, dt;     ///< (n, C) and (n, H)
  ConvScanParameters parameters;
  execution::View seq_idx;       ///< (n) int32
  Columns dxbc, ddt;             ///< as the inputs
  ConvScanParameters gradients;  ///< of the accumulation dtype
  execution::View workspace;
};

/// Causal convolution, SiLU and scan of a Mamba-2 mixer as one operator: the rows between the two
/// need be no tensor of the program.
///
///   [X | B | C] = silu(conv1d(xbc)),  y = scan(X, dt, B, C)
///
/// as conv1d_silu_forward and ssd_forward give them; between the two the rows are rounded to
/// storage, as there, and go to `convolved` if it is there, else to the workspace. All floating
/// operands have one storage dtype; xbc and dt are columns of wider tensors (n, *).
void conv_scan_forward(execution::Queue& queue, const SsdShape& shape,
                       const ConvScanForwardOperands& views);

/// Gradients of the above; convolution and states are computed again. dxbc and ddt are stored; the
/// parameters' gradients are stored or, with `accumulate`, added to.
void conv_scan_backward(execution::Queue& queue, const SsdShape& shape,
                        const ConvScanBackwardOperands& views, bool accumulate);

/// Room for the rows between convolution and scan (in forward unless `has_rows`: they have a tensor
/// of their own), in backward also for their gradient, in the same place where the scan allows it,
/// and for what the two need.
std::size_t conv_scan_forward_workspace_bytes(const SsdShape& shape, std::int64_t tokens,
                                              execution::Dtype storage, bool has_rows = false);
std::size_t conv_scan_backward_workspace_bytes(const SsdShape& shape, std::int64_t tokens,
                                               execution::Dtype storage);

/// The flops of both parts (backward: and of the convolution again); bytes of the operands alone.
execution::Cost conv_scan_forward_cost(const SsdShape& shape, std::int64_t tokens,
                                       execution::Dtype storage, std::int64_t conv_width);
execution::Cost conv_scan_backward_cost(const SsdShape& shape, std::int64_t tokens,
                                        execution::Dtype storage, std::int64_t conv_width);

}  // namespace stowage::kernels
