#pragma once

#include <limits>

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Sizes and options of a state-space scan. Head h reads B and C of group h / (heads / groups).
struct SsdShape {
  std::int64_t heads = 0;     ///< H, a multiple of groups
  std::int64_t head_dim = 0;  ///< P
  std::int64_t groups = 0;    ///< G
  std::int64_t state = 0;     ///< N
  std::int64_t chunk = 64;    ///< Q, tokens that are handled by products at once
  double dt_min = 0;          ///< step sizes are clamped to [dt_min, dt_max] after softplus
  double dt_max = std::numeric_limits<double>::infinity();

  /// Columns of X, of B or of C, and of [X | B | C].
  std::int64_t inner() const { return heads * head_dim; }
  std::int64_t shared() const { return groups * state; }
  std::int64_t channels() const { return inner() + 2 * shared(); }
  /// (H, P, N)
  std::vector<std::int64_t> states() const { return {heads, head_dim, state}; }
  /// True if the tensor-core kernels take the shape on this machine (Machine), not the simple ones.
  bool on_tensor_cores(execution::Dtype storage) const;
  std::string fault() const;
};

/// What a scan reads. All floating operands have one storage dtype, columns are those of wider
/// tensors. States are of its accumulation dtype.
template <class T>
struct SsdInputs {
  InColumns<T> xbc;  ///< (n, H P + 2 G N): [X | B | C]
  InColumns<T> dt;   ///< (n, H), before bias and softplus
  In<T> a_log, d, dt_bias;
  Of<T, const std::int32_t> seq_idx;  ///< the document of each token, non-decreasing
  SumsIn<T> initial_state;  ///< (H, P, N) before the first token, whose document it is of; else 0
};

/// The gradients of those inputs.
template <class T>
struct SsdGradients {
  OutColumns<T> dxbc, ddt;
  SumsOut<T> da_log, dd, ddt_bias;
};

/// The selective state-space scan of Mamba-2 (SSD, arXiv 2405.21060), for each head:
///
///   dt_t = clamp(softplus(dt_raw_t + dt_bias), dt_min, dt_max),  A = -exp(a_log)
///   h_t = exp(dt_t A) h_{t-1} + dt_t X_t B_t^T,  y_t = h_t C_t + d X_t      (h: P x N)
///
/// h is zero before the first token of each document, at any position, but what initial_state says
/// before token 0. State, decay and sums are kept in the accumulation dtype. `chunk` changes the
/// rounding only.
///
/// A sequence that is cut into segments, on one rank or several, is one scan a segment, each handed
/// the state of the one before.
struct SsdForward {
  static constexpr std::string_view kName = "ssd_forward";
  SsdShape shape;
  std::int64_t tokens;
  execution::Dtype storage;
  bool initial_state = false;
  bool final_state = false;

  template <class T>
  struct Operands {
    SsdInputs<T> inputs;
    Out<T> y;
    SumsOut<T> workspace;
    SumsOut<T> final_state;  ///< after the last token
    SumsOut<T> total_decay;  ///< d final_state / d initial_state
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    each_input(shape, tokens, storage, f, o.inputs...);
    f(out("y", storage, {tokens, shape.inner()}), o.y...);
    f(workspace(workspace_bytes()), o.workspace...);
    f(in("initial_state", sums, shape.states()).when(initial_state), o.inputs.initial_state...);
    f(out("final_state", sums, shape.states()).when(final_state), o.final_state...);
    f(out("total_decay", sums, {shape.heads}).when(final_state), o.total_decay...);
  }
  /// All of the inputs but the state.
  static void each_input(const SsdShape& shape, std::int64_t tokens, execution::Dtype storage,
                         auto&& f, auto&... i) {
    f(in("xbc", storage, {tokens, shape.channels()}), i.xbc...);
    f(in("dt", storage, {tokens, shape.heads}), i.dt...);
    f(in("a_log", storage, {shape.heads}), i.a_log...);
    f(in("d", storage, {shape.heads}), i.d...);
    f(in("dt_bias", storage, {shape.heads}), i.dt_bias...);
    f(in("seq_idx", execution::Dtype::int32, {tokens}), i.seq_idx...);
  }
  /// Room for step sizes, decays and the state of each chunk (backward: and its gradient), on
  /// either backend: a plan does not say which. The host's is the more where `chunk` is short.
  std::size_t workspace_bytes() const;
  std::string fault() const { return shape.fault(); }
  /// Flops of the chunked form with whole Q x Q tiles of Q = 128, whatever chunk a kernel uses.
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
  /// The chunked algorithm of section 6.
  template <class S>
  void reference(const Operands<Pointers<S>>& o) const;
  /// The recurrence as written above, token by token: what tests compare the chunked form with.
  template <class S>
  void recurrence(const Operands<Pointers<S>>& o) const;
  /// @throws Error if a (N, P) tile does not fit in the shared memory of a GPU whose tensor cores
  /// do not take the shape
  template <class S>
  int launch(const Operands<Pointers<S>>& o, void* stream) const;
};

/// Gradients of the above; the states are computed again from the inputs.
///
/// dxbc and ddt are stored; da_log, dd, ddt_bias are stored or, with `accumulate`, added to. A step
/// size outside of [dt_min, dt_max] passes no gradient to dt.
struct SsdBackward {
  static constexpr std::string_view kName = "ssd_backward";
  SsdShape shape;
  std::int64_t tokens;
  execution::Dtype storage;
  bool accumulate;
  bool initial_state = false;
  bool dfinal_state = false;
  bool dinitial_state = false;

  template <class T>
  struct Operands {
    SsdInputs<T> inputs;
    In<T> dy;
    SsdGradients<T> gradients;
    SumsOut<T> workspace;
    SumsIn<T> dfinal_state;     ///< of the state after the last token; else 0
    SumsOut<T> dinitial_state;  ///< of the state before the first
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    SsdForward::each_input(shape, tokens, storage, f, o.inputs...);
    f(in("dy", storage, {tokens, shape.inner()}), o.dy...);
    f(out("dxbc", storage, {tokens, shape.channels()}), o.gradients.dxbc...);
    f(out("ddt", storage, {tokens, shape.heads}), o.gradients.ddt...);
    f(sum("da_log", accumulate, sums, {shape.heads}), o.gradients.da_log...);
    f(sum("dd", accumulate, sums, {shape.heads}), o.gradients.dd...);
    f(sum("ddt_bias", accumulate, sums, {shape.heads}), o.gradients.ddt_bias...);
    f(workspace(workspace_bytes()), o.workspace...);
    f(in("initial_state", sums, shape.states()).when(initial_state), o.inputs.initial_state...);
    f(in("dfinal_state", sums, shape.states()).when(dfinal_state), o.dfinal_state...);
    f(out("dinitial_state", sums, shape.states()).when(dinitial_state), o.dinitial_state...);
  }
  std::size_t workspace_bytes() const;
  std::string fault() const { return shape.fault(); }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
