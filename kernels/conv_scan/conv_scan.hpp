#pragma once

#include <cstddef>

#include "kernels/conv1d/conv1d.hpp"
#include "kernels/ssd/ssd.hpp"

namespace stowage::kernels {

/// Causal convolution, SiLU and scan of a Mamba-2 mixer as one operator: the rows between the two
/// need be no tensor of the program.
///
///   [X | B | C] = silu(conv1d(xbc)),  y = scan(X, dt, B, C)
///
/// as Conv1dForward and SsdForward give them; between the two the rows are rounded to storage, as
/// there, and are an output if `convolved`, else in the workspace. The convolution has C = H P +
/// 2 G N channels.
struct ConvScanForward {
  static constexpr std::string_view kName = "conv_scan_forward";
  SsdShape shape;
  std::int64_t tokens, conv_width;
  execution::Dtype storage;
  bool convolved = false;  ///< for a backward by the two operators

  template <class T>
  struct Operands {
    In<T> conv_weight, conv_bias;
    SsdInputs<T> inputs;  ///< xbc before the convolution; without an initial state
    Out<T> y;
    Of<T, std::byte> workspace;
    Out<T> convolved;
  };
  void each(auto&& f, auto&... o) const {
    each_input(*this, f, o...);
    f(out("y", storage, {tokens, shape.inner()}), o.y...);
    f(workspace(workspace_bytes()), o.workspace...);
    f(out("convolved", storage, {tokens, shape.channels()}).when(convolved), o.convolved...);
  }
  /// The inputs, of either direction.
  template <class Op>
  static void each_input(const Op& op, auto&& f, auto&... o) {
    const std::int64_t channels = op.shape.channels(), heads = op.shape.heads;
    f(in("xbc", op.storage, {op.tokens, channels}), o.inputs.xbc...);
    f(in("dt", op.storage, {op.tokens, heads}), o.inputs.dt...);
    f(in("conv_weight", op.storage, {channels, op.conv_width}), o.conv_weight...);
    f(in("conv_bias", op.storage, {channels}), o.conv_bias...);
    f(in("a_log", op.storage, {heads}), o.inputs.a_log...);
    f(in("d", op.storage, {heads}), o.inputs.d...);
    f(in("dt_bias", op.storage, {heads}), o.inputs.dt_bias...);
    f(in("seq_idx", execution::Dtype::int32, {op.tokens}), o.inputs.seq_idx...);
    f(in("initial_state", execution::accumulation(op.storage), {}).when(false),
      o.inputs.initial_state...);
  }
  /// The two operators.
  Conv1dForward conv() const;
  SsdForward scan() const { return {.shape = shape, .tokens = tokens, .storage = storage}; }
  /// For the rows between convolution and scan, unless they have a tensor of their own, and for
  /// what the two need.
  std::size_t workspace_bytes() const;
  std::string fault() const;
  /// The flops of both parts; bytes of the operands alone.
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
  template <class S>
  void reference(const Operands<Pointers<S>>& o) const;
  /// The fused kernels where they serve, else the two operators' own.
  template <class S>
  int launch(const Operands<Pointers<S>>& o, void* stream) const;
  /// Whether the fused kernels take these operands on this machine. S is float or Bf16.
  template <class S>
  bool is_fused(const Operands<Pointers<S>>& o) const;
};

/// Gradients of the above; convolution and states are computed again. dxbc and ddt are stored; the
/// parameters' gradients are stored or, with `accumulate`, added to.
struct ConvScanBackward {
  static constexpr std::string_view kName = "conv_scan_backward";
  SsdShape shape;
  std::int64_t tokens, conv_width;
  execution::Dtype storage;
  bool accumulate;

  template <class T>
  struct Operands {
    In<T> dy, conv_weight, conv_bias;
    SsdInputs<T> inputs;  ///< as of ConvScanForward
    SumsOut<T> dconv_weight, dconv_bias;
    SsdGradients<T> gradients;
    Of<T, std::byte> workspace;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("dy", storage, {tokens, shape.inner()}), o.dy...);
    ConvScanForward::each_input(*this, f, o...);
    f(out("dxbc", storage, {tokens, shape.channels()}), o.gradients.dxbc...);
    f(out("ddt", storage, {tokens, shape.heads}), o.gradients.ddt...);
    f(sum("dconv_weight", accumulate, sums, {shape.channels(), conv_width}), o.dconv_weight...);
    f(sum("dconv_bias", accumulate, sums, {shape.channels()}), o.dconv_bias...);
    f(sum("da_log", accumulate, sums, {shape.heads}), o.gradients.da_log...);
    f(sum("dd", accumulate, sums, {shape.heads}), o.gradients.dd...);
    f(sum("ddt_bias", accumulate, sums, {shape.heads}), o.gradients.ddt_bias...);
    f(workspace(workspace_bytes()), o.workspace...);
  }
  /// The operators that it consists of.
  Conv1dForward conv() const;
  SsdBackward scan() const;
  Conv1dBackward conv_backward() const;
  /// For the rows between, for their gradient, in the same place where the scan allows it, and for
  /// what the parts need.
  std::size_t workspace_bytes() const;
  std::string fault() const;
  /// As of the forward, with the flops of the convolution again.
  STOWAGE_OPERATOR_MEMBERS;
  template <class S>
  bool is_fused(const Operands<Pointers<S>>& o) const;
};

}  // namespace stowage::kernels
