#pragma once

#include "kernels/conv_scan/conv_scan.hpp"

/// The operators that conv_scan consists of, with their operands: how the host runs it, and a GPU
/// where the fused kernels do not serve.
namespace stowage::kernels::detail {

/// Bytes of (n, C) rows in the workspace.
std::size_t conv_scan_rows_bytes(const SsdShape& shape, std::int64_t tokens,
                                 execution::Dtype storage);
/// Whether the gradient of the rows between may lie where they do.
bool conv_scan_in_place(const SsdShape& shape, execution::Dtype storage);

/// The inputs of the scan once the convolution is there.
template <class S>
SsdInputs<Pointers<S>> behind_conv(SsdInputs<Pointers<S>> inputs, const S* convolved) {
  const std::int64_t channels = inputs.xbc.columns;
  inputs.xbc = {convolved, inputs.xbc.rows, channels, channels};
  return inputs;
}

template <class Op, class S>
OperandsOf<Conv1dForward, Pointers<S>> conv_operands(const OperandsOf<Op, Pointers<S>>& o,
                                                     S* convolved) {
  return {.x = o.inputs.xbc,
          .w = o.conv_weight,
          .b = o.conv_bias,
          .seq_idx = o.inputs.seq_idx,
          .y = convolved,
          .halo = nullptr};
}

template <class S>
struct ConvScanForwardSteps {
  using A = execution::Accumulation<S>;

  ConvScanForwardSteps(const ConvScanForward& op, const OperandsOf<ConvScanForward, Pointers<S>>& o)
      : op_(op) {
    const std::size_t rows =
        op.convolved ? 0 : conv_scan_rows_bytes(op.shape, op.tokens, op.storage);
    S* between = op.convolved ? o.convolved : reinterpret_cast<S*>(o.workspace);
    conv = conv_operands<ConvScanForward>(o, between);
    scan = {.inputs = behind_conv<S>(o.inputs, between),
            .y = o.y,
            .workspace = reinterpret_cast<A*>(o.workspace + rows),
            .final_state = nullptr,
            .total_decay = nullptr};
  }
  /// @param run of an operator on its operands; not 0: the rest is left out
  int each(auto&& run) const {
    const int code = run(op_.conv(), conv);
    return code != 0 ? code : run(op_.scan(), scan);
  }

  OperandsOf<Conv1dForward, Pointers<S>> conv;
  OperandsOf<SsdForward, Pointers<S>> scan;

 private:
  const ConvScanForward& op_;
};

template <class S>
struct ConvScanBackwardSteps {
  using A = execution::Accumulation<S>;

  ConvScanBackwardSteps(const ConvScanBackward& op,
                        const OperandsOf<ConvScanBackward, Pointers<S>>& o)
      : op_(op) {
    const std::size_t rows = conv_scan_rows_bytes(op.shape, op.tokens, op.storage);
    const std::size_t gradients = conv_scan_in_place(op.shape, op.storage) ? 0 : rows;
    S* convolved = reinterpret_cast<S*>(o.workspace);
    S* dconvolved = reinterpret_cast<S*>(o.workspace + gradients);
    A* parts = reinterpret_cast<A*>(o.workspace + gradients + rows);
    conv = conv_operands<ConvScanBackward>(o, convolved);
    scan = {.inputs = behind_conv<S>(o.inputs, convolved),
            .dy = o.dy,
            .gradients = o.gradients,
            .workspace = parts,
            .dfinal_state = nullptr,
            .dinitial_state = nullptr};
    scan.gradients.dxbc = {dconvolved, op.tokens, conv.x.columns, conv.x.columns};
    conv_backward = {.dy = dconvolved,
                     .x = conv.x,
                     .w = conv.w,
                     .b = conv.b,
                     .seq_idx = conv.seq_idx,
                     .dx = o.gradients.dxbc,
                     .dw = o.dconv_weight,
                     .db = o.dconv_bias,
                     .workspace = parts,
                     .halo = nullptr,
                     .dhalo = nullptr};
  }
  int each(auto&& run) const {
    if (const int code = run(op_.conv(), conv); code != 0) return code;
    const int code = run(op_.scan(), scan);
    return code != 0 ? code : run(op_.conv_backward(), conv_backward);
  }

  OperandsOf<Conv1dForward, Pointers<S>> conv;
  OperandsOf<SsdBackward, Pointers<S>> scan;
  OperandsOf<Conv1dBackward, Pointers<S>> conv_backward;

 private:
  const ConvScanBackward& op_;
};

}  // namespace stowage::kernels::detail
