#pragma once

#include "kernels/moe/forced_load.hpp"
#include "kernels/moe/row_tokens.hpp"
#include "kernels/operator.hpp"

namespace stowage::kernels {

/// How tokens choose experts (arXiv 2412.19437 section 2.1.2, DeepSeek-V3; softmax: arXiv
/// 2101.03961, Switch).
struct RouterOptions {
  /// Of device code: a warp holds the scores of one token in registers.
  static constexpr int kMostExperts = 1024;

  int experts = 0;        ///< E
  int topk = 0;           ///< R, experts per token
  int groups = 1;         ///< the experts lie in this many equal groups …
  int group_topk = 1;     ///< … of which a token uses this many
  bool sigmoid = true;    ///< scores: sigmoid of each logit; else softmax over the experts
  bool normalise = true;  ///< weights of a token sum to `scaling`
  double scaling = 1;     ///< factor of all weights
  double aux_coeff = 0;   ///< load-balancing loss, see RouterLosses
  double z_coeff = 0;     ///< z loss
  double aux_scale = 1;   ///< 1 / (microbatches * ranks): these losses are means over the step
  RowTokens rows = {};    ///< ranks may share the tokens' rows out
  ForcedLoad load = ForcedLoad::none;  ///< for benchmarks: experts are drawn …
  int layer = 0;                       ///< … each layer others

  std::string fault() const;
};

// In all of these: logits (n, E) in the accumulation dtype, E experts, R experts per token,
// cu_seqlens (C + 1); N = cu_seqlens[C] tokens are routed, later ones are the tail. The n rows may
// be a part of the tokens; `offsets` count all N.

/// indices (n, R): the R experts with the largest score + bias, largest first, ties to the lower
/// index; -1 for tail tokens. With groups, only experts of the group_topk groups with the largest
/// sum of their two best are candidates. With a forced load instead the R experts with the smallest
/// detail::forced_key, smallest first, ties to the lower index, whatever scores, bias and groups
/// are. Selection has no gradient. weights, if they are asked for, are those of RouterWeights.
struct RouterSelect {
  static constexpr std::string_view kName = "router_select";
  std::int64_t tokens;
  RouterOptions options;
  std::int64_t starts;  ///< C + 1
  execution::Dtype storage;
  bool bias = false, weights = false;

  template <class T>
  struct Operands {
    SumsIn<T> logits, bias;
    Of<T, const std::int32_t> cu_seqlens;
    Of<T, std::int32_t> indices;
    SumsOut<T> weights;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype accum = execution::accumulation(storage),
                           int32 = execution::Dtype::int32;
    f(in("logits", accum, {tokens, options.experts}), o.logits...);
    f(in("bias", accum, {options.experts}).when(bias), o.bias...);
    f(in("cu_seqlens", int32, {starts}), o.cu_seqlens...);
    f(out("indices", int32, {tokens, options.topk}), o.indices...);
    f(out("weights", accum, {tokens, options.topk}).when(weights), o.weights...);
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// weights (n, R): s_r = score of the r-th chosen expert (without bias); with `normalise`
/// s_r / (sum of the token's s + 1e-20); times scaling. 0 where the index is -1.
struct RouterWeights {
  static constexpr std::string_view kName = "router_weights";
  std::int64_t tokens;
  RouterOptions options;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    SumsIn<T> logits;
    Of<T, const std::int32_t> indices;
    SumsOut<T> weights;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype accum = execution::accumulation(storage);
    f(in("logits", accum, {tokens, options.experts}), o.logits...);
    f(in("indices", execution::Dtype::int32, {tokens, options.topk}), o.indices...);
    f(out("weights", accum, {tokens, options.topk}), o.weights...);
  }
  std::string fault() const { return options.fault(); }
  STOWAGE_OPERATOR_MEMBERS;
};

/// dlogits (n, E) from the gradient of the weights and of both losses. Stored; 0 for tail tokens.
struct RouterBackward {
  static constexpr std::string_view kName = "router_backward";
  std::int64_t tokens;
  RouterOptions options;
  std::int64_t starts;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    SumsIn<T> dweights_rows;              ///< (n * R) in the order of the routed rows
    Of<T, const std::int32_t> token_row;  ///< as of PermuteIndex, and offsets
    SumsIn<T> logits;
    Of<T, const std::int32_t> indices;
    SumsIn<T> weights;
    Of<T, const std::int32_t> offsets, cu_seqlens;
    SumsOut<T> dlogits;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype accum = execution::accumulation(storage),
                           int32 = execution::Dtype::int32;
    f(in("dweights_rows", accum, {tokens * options.topk}), o.dweights_rows...);
    f(in("token_row", int32, {tokens, options.topk}), o.token_row...);
    f(in("logits", accum, {tokens, options.experts}), o.logits...);
    f(in("indices", int32, {tokens, options.topk}), o.indices...);
    f(in("weights", accum, {tokens, options.topk}), o.weights...);
    f(in("offsets", int32, {options.experts + 1}), o.offsets...);
    f(in("cu_seqlens", int32, {starts}), o.cu_seqlens...);
    f(out("dlogits", accum, {tokens, options.experts}), o.dlogits...);
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// losses (2) = {aux, z}, times aux_scale, stored or added:
///
///   aux = aux_coeff * E * sum_e f_e P_e   f_e: share of the N R choices, P_e: mean over tokens of
///                                         the scores, scaled to sum 1 per token (Switch eq. 4)
///   z = z_coeff * mean over tokens of logsumexp(logits)^2      (ST-MoE, arXiv 2202.08906 eq. 5)
///
/// Both are 0 without routed tokens. Their gradient is in RouterBackward.
struct RouterLosses {
  static constexpr std::string_view kName = "router_losses";
  std::int64_t tokens;
  RouterOptions options;
  std::int64_t starts;
  execution::Dtype storage;
  bool accumulate;

  template <class T>
  struct Operands {
    SumsIn<T> logits;
    Of<T, const std::int32_t> offsets, cu_seqlens;
    RowsOfType<T, Sums> losses;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype accum = execution::accumulation(storage),
                           int32 = execution::Dtype::int32;
    f(in("logits", accum, {tokens, options.experts}), o.logits...);
    f(in("offsets", int32, {options.experts + 1}), o.offsets...);
    f(in("cu_seqlens", int32, {starts}), o.cu_seqlens...);
    f(sum("losses", accumulate, accum, {2}), o.losses...);
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
