#pragma once

#include "kernels/conv1d/conv1d.hpp"
#include "kernels/conv_scan/conv_scan.hpp"

/// What the queue form of conv_scan hands to its host and device forms.
namespace stowage::kernels::detail {

/// Channels C of the convolution.
constexpr std::int64_t conv_scan_channels(const SsdShape& shape) {
  return shape.heads * shape.head_dim + 2 * shape.groups * shape.state;
}

/// The workspace: rows between convolution and scan, their gradient, and what the parts need.
struct ConvScanRoom {
  void* convolved = nullptr;
  void* dconvolved = nullptr;  ///< may be `convolved`
  void* parts = nullptr;
};

/// The operands in memory; X, B and C are columns of one matrix.
template <class S>
struct ConvScanInputs {
  Matrix<const S> xbc, dt;
  const S* conv_weight = nullptr;
  const S* conv_bias = nullptr;
  const S* a_log = nullptr;
  const S* d = nullptr;
  const S* dt_bias = nullptr;
  const std::int32_t* seq_idx = nullptr;
  std::int64_t conv_width = 0;  ///< taps of conv_weight

  Conv1dForward conv() const {
    return {.tokens = xbc.rows,
            .channels = xbc.columns,
            .width = conv_width,
            .storage = execution::kDtypeOf<S>};
  }
  OperandsOf<Conv1dForward, Pointers<S>> conv_operands(S* convolved) const {
    return {.x = xbc,
            .w = conv_weight,
            .b = conv_bias,
            .seq_idx = seq_idx,
            .y = convolved,
            .halo = nullptr};
  }

  /// The scan's inputs once the convolution is there.
  SsdInputs<S> scan(const SsdShape& shape, const S* convolved) const {
    const std::int64_t inner = shape.heads * shape.head_dim, shared = shape.groups * shape.state;
    const std::int64_t stride = conv_scan_channels(shape);
    return {{convolved, xbc.rows, inner, stride},
            dt,
            {convolved + inner, xbc.rows, shared, stride},
            {convolved + inner + shared, xbc.rows, shared, stride},
            a_log,
            d,
            dt_bias,
            seq_idx};
  }
};

template <class S>
struct ConvScanGradients {
  using A = execution::Accumulation<S>;
  Matrix<S> dxbc, ddt;
  A* dconv_weight = nullptr;
  A* dconv_bias = nullptr;
  A* da_log = nullptr;
  A* dd = nullptr;
  A* ddt_bias = nullptr;

  Conv1dBackward conv(const ConvScanInputs<S>& in, bool accumulate) const {
    return {.tokens = in.xbc.rows,
            .channels = in.xbc.columns,
            .width = in.conv_width,
            .storage = execution::kDtypeOf<S>,
            .accumulate = accumulate};
  }
  OperandsOf<Conv1dBackward, Pointers<S>> conv_operands(const ConvScanInputs<S>& in,
                                                        const S* dconvolved, A* workspace) const {
    return {.dy = dconvolved,
            .x = in.xbc,
            .w = in.conv_weight,
            .b = in.conv_bias,
            .seq_idx = in.seq_idx,
            .dx = dxbc,
            .dw = dconv_weight,
            .db = dconv_bias,
            .workspace = workspace,
            .halo = nullptr,
            .dhalo = nullptr};
  }

  SsdGradients<S> scan(const SsdShape& shape, S* dconvolved) const {
    const std::int64_t inner = shape.heads * shape.head_dim, shared = shape.groups * shape.state;
    const std::int64_t stride = conv_scan_channels(shape);
    return {{dconvolved, dxbc.rows, inner, stride},
            ddt,
            {dconvolved + inner, dxbc.rows, shared, stride},
            {dconvolved + inner + shared, dxbc.rows, shared, stride},
            da_log,
            dd,
            ddt_bias};
  }
};

/// Whether the fused kernels (conv_scan_cuda.hpp) take these operands on this machine; of `inputs`
/// the matrices count. S is float or Bf16.
template <class S>
bool conv_scan_forward_is_fused(const SsdShape& shape, const ConvScanInputs<S>& inputs, const S* y);
template <class S>
bool conv_scan_backward_is_fused(const SsdShape& shape, const ConvScanInputs<S>& inputs,
                                 const S* dy, const ConvScanGradients<S>& gradients);

/// Device forms: the fused kernels where they serve, else the two operators' own. Asynchronous on
/// `stream`, a cudaStream_t; capturable. Returns the cudaError_t of the launches; throws as those
/// do.
template <class S>
int conv_scan_forward_cuda(const SsdShape& shape, const ConvScanInputs<S>& inputs, S* y,
                           const ConvScanRoom& room, void* stream);
template <class S>
int conv_scan_backward_cuda(const SsdShape& shape, const ConvScanInputs<S>& inputs, const S* dy,
                            const ConvScanGradients<S>& gradients, const ConvScanRoom& room,
                            bool accumulate, void* stream);

}  // namespace stowage::kernels::detail
