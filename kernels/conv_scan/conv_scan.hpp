#pragma once

#include "kernels/ssd/ssd.hpp"

namespace stowage::kernels {

/// The parameters of a convolution and a scan, or their gradients: weight (C, 4) and bias (C) of
/// the convolution, a_log, d and dt_bias (H) of the scan, C = H P + 2 G N.
struct ConvScanParameters {
  execution::View conv_weight, conv_bias, a_log, d, dt_bias;
};

/// Causal convolution, SiLU and scan of a Mamba-2 mixer as one operator: the rows between the two
/// need be no tensor of the program.
///
///   [X | B | C] = silu(conv1d(xbc)),  y = scan(X, dt, B, C)
///
/// as conv1d_silu_forward and ssd_forward give them; between the two the rows are rounded to
/// storage, as there. xbc (C) and dt (H): columns of wider tensors (n, *); y (n, H P); seq_idx (n)
/// int32; all else of one storage dtype. The rows between go to
/// `convolved` (n, C) if it is there, for a backward by the two operators, else to the workspace.
void conv_scan_forward(execution::Queue& queue, const SsdShape& shape, const Columns& xbc,
                       const Columns& dt, const ConvScanParameters& parameters,
                       const execution::View& seq_idx, const execution::View& convolved,
                       const execution::View& y, const execution::View& workspace);

/// Gradients of the above for dy (n, H P); convolution and states are computed again.
///
/// dxbc and ddt (columns, as the inputs) are stored; the parameters' gradients, in the accumulation
/// dtype, are stored or, with `accumulate`, added to.
void conv_scan_backward(execution::Queue& queue, const SsdShape& shape, const execution::View& dy,
                        const Columns& xbc, const Columns& dt, const ConvScanParameters& parameters,
                        const execution::View& seq_idx, const Columns& dxbc, const Columns& ddt,
                        const ConvScanParameters& gradients, const execution::View& workspace,
                        bool accumulate);

/// Room for the rows between convolution and scan (in forward unless `has_rows`: they have a tensor
/// of their own), in backward also for their gradient, in the same place where the scan allows it,
/// and for what the two need.
std::size_t conv_scan_forward_workspace_bytes(const SsdShape& shape, std::int64_t tokens,
                                              execution::Dtype storage, bool has_rows = false);
std::size_t conv_scan_backward_workspace_bytes(const SsdShape& shape, std::int64_t tokens,
                                               execution::Dtype storage);

/// The flops of both parts (backward: and of the convolution again); bytes of the operands alone.
execution::Cost conv_scan_forward_cost(const SsdShape& shape, std::int64_t tokens,
                                       execution::Dtype storage);
execution::Cost conv_scan_backward_cost(const SsdShape& shape, std::int64_t tokens,
                                        execution::Dtype storage);

}  // namespace stowage::kernels
