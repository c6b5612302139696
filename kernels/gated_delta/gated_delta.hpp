#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Sizes of a gated delta rule. Value head h reads q and k of head h / (value_heads / key_heads).
struct GatedDeltaShape {
  std::int64_t key_heads = 0;    ///< Hk, of q and of k; divides value_heads
  std::int64_t value_heads = 0;  ///< Hv
  std::int64_t key_dim = 0;      ///< N
  std::int64_t value_dim = 0;    ///< P
  bool channel_decay = false;    ///< a decay for each of the N columns of a head; else one a head

  /// Columns of q or of k, of v, and of [q | k | v].
  std::int64_t keys() const { return key_heads * key_dim; }
  std::int64_t values() const { return value_heads * value_dim; }
  std::int64_t channels() const { return 2 * keys() + values(); }
  std::int64_t heads_per_key() const { return value_heads / key_heads; }
  /// Decays of a head of v, and of all.
  std::int64_t head_decays() const { return channel_decay ? key_dim : 1; }
  std::int64_t decays() const { return value_heads * head_decays(); }
  /// Columns of b, and of a where each head has one.
  std::int64_t gates() const { return channel_decay ? value_heads : 2 * value_heads; }
  /// (Hv, P, N)
  std::vector<std::int64_t> states() const { return {value_heads, value_dim, key_dim}; }
  std::string fault() const;
};

/// Tokens of a chunk of the chunked form.
inline constexpr int kGatedDeltaChunk = 64;
/// Added to the squares of a head of q or k before the root of its norm.
inline constexpr double kGatedDeltaEpsilon = 1e-6;

/// What the rule reads. All floating operands have one storage dtype, columns are those of wider
/// tensors. States are of its accumulation dtype.
template <class T>
struct GatedDeltaInputs {
  InColumns<T> qkv;  ///< (n, 2 Hk N + Hv P): [q | k | v], before the norms of q and k
  InColumns<T> ba;  ///< (n, 2 Hv): [b | a], before sigmoid and softplus; (n, Hv) with channel_decay
  In<T> a;          ///< (n, Hv N) with channel_decay, before softplus
  In<T> a_log;      ///< (Hv)
  In<T> dt_bias;    ///< (Hv), or (Hv N) with channel_decay
  Of<T, const std::int32_t> seq_idx;  ///< the document of each token, non-decreasing
  SumsIn<T> initial_state;  ///< (Hv, P, N) before the first token, whose document it is of; else 0
};

/// The gradients of those inputs.
template <class T>
struct GatedDeltaGradients {
  OutColumns<T> dqkv, dba;
  Out<T> da;
  SumsOut<T> da_log, ddt_bias;
};

/// The gated delta rule (gated DeltaNet, arXiv 2412.06464, section 3), for each value head:
///
///   alpha_t = exp(-exp(a_log) softplus(a_t + dt_bias)),  beta_t = sigmoid(b_t)
///   q_t, k_t: their heads times 1 / sqrt(|x|^2 + 1e-6), and q_t / sqrt(N) besides
///   S_t = alpha_t S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T,  y_t = S_t q_t   (S: P x N)
///
/// With channel_decay it is Kimi delta attention (arXiv 2510.26692): each of the N
/// columns of S has an alpha_t of its own, S_{t-1} diag(alpha_t) in place of alpha_t S_{t-1}.
///
/// S is zero before the first token of each document, at any position, but what initial_state says
/// before token 0. State, decay and sums are kept in the accumulation dtype.
///
/// A sequence that is cut into segments, on one rank or several, is one rule a segment, each handed
/// the state of the one before.
struct GatedDeltaForward {
  static constexpr std::string_view kName = "gated_delta_forward";
  GatedDeltaShape shape;
  std::int64_t tokens;
  execution::Dtype storage;
  bool initial_state = false;
  bool final_state = false;

  template <class T>
  struct Operands {
    GatedDeltaInputs<T> inputs;
    Out<T> y;
    SumsOut<T> workspace;
    SumsOut<T> final_state;  ///< after the last token
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    each_input(shape, tokens, storage, f, o.inputs...);
    f(out("y", storage, {tokens, shape.values()}), o.y...);
    f(workspace(workspace_bytes()), o.workspace...);
    f(in("initial_state", sums, shape.states()).when(initial_state), o.inputs.initial_state...);
    f(out("final_state", sums, shape.states()).when(final_state), o.final_state...);
  }
  /// All of the inputs but the state.
  static void each_input(const GatedDeltaShape& shape, std::int64_t tokens,
                         execution::Dtype storage, auto&& f, auto&... i) {
    f(in("qkv", storage, {tokens, shape.channels()}), i.qkv...);
    f(in("ba", storage, {tokens, shape.gates()}), i.ba...);
    f(in("a", storage, {tokens, shape.decays()}).when(shape.channel_decay), i.a...);
    f(in("a_log", storage, {shape.value_heads}), i.a_log...);
    f(in("dt_bias", storage, {shape.decays()}), i.dt_bias...);
    f(in("seq_idx", execution::Dtype::int32, {tokens}), i.seq_idx...);
  }
  /// For what is alike for all columns of a state: decays, inverses and products of each chunk.
  std::size_t workspace_bytes() const;
  std::string fault() const { return shape.fault(); }
  /// Flops of the chunked form. @throws Error in launch if a chunk's tiles do not fit in the shared
  /// memory of a GPU
  STOWAGE_OPERATOR_MEMBERS;
};

/// Gradients of the above; the states are computed again from the inputs.
///
/// dqkv, dba and da are stored; da_log and ddt_bias are stored or, with `accumulate`, added to.
struct GatedDeltaBackward {
  static constexpr std::string_view kName = "gated_delta_backward";
  GatedDeltaShape shape;
  std::int64_t tokens;
  execution::Dtype storage;
  bool accumulate;
  bool initial_state = false;
  bool dfinal_state = false;
  bool dinitial_state = false;

  template <class T>
  struct Operands {
    GatedDeltaInputs<T> inputs;
    In<T> dy;
    GatedDeltaGradients<T> gradients;
    SumsOut<T> workspace;
    SumsIn<T> dfinal_state;     ///< of the state after the last token; else 0
    SumsOut<T> dinitial_state;  ///< of the state before the first
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    GatedDeltaForward::each_input(shape, tokens, storage, f, o.inputs...);
    f(in("dy", storage, {tokens, shape.values()}), o.dy...);
    f(out("dqkv", storage, {tokens, shape.channels()}), o.gradients.dqkv...);
    f(out("dba", storage, {tokens, shape.gates()}), o.gradients.dba...);
    f(out("da", storage, {tokens, shape.decays()}).when(shape.channel_decay), o.gradients.da...);
    f(sum("da_log", accumulate, sums, {shape.value_heads}), o.gradients.da_log...);
    f(sum("ddt_bias", accumulate, sums, {shape.decays()}), o.gradients.ddt_bias...);
    f(workspace(workspace_bytes()), o.workspace...);
    f(in("initial_state", sums, shape.states()).when(initial_state), o.inputs.initial_state...);
    f(in("dfinal_state", sums, shape.states()).when(dfinal_state), o.dfinal_state...);
    f(out("dinitial_state", sums, shape.states()).when(dinitial_state), o.dinitial_state...);
  }
  /// For the state of each chunk, its gradient, and what the chunk's tokens add to it, besides.
  std::size_t workspace_bytes() const;
  std::string fault() const { return shape.fault(); }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
