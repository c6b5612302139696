#pragma once

#include <cstdint>

#include "execution/op.hpp"
#include "kernels/moe/forced_load.hpp"
#include "kernels/moe/row_tokens.hpp"

namespace stowage::kernels {

/// How tokens choose experts (arXiv 2412.19437 section 2.1.2, DeepSeek-V3; softmax: arXiv
/// 2101.03961, Switch).
struct RouterOptions {
  int experts = 0;        ///< E
  int topk = 0;           ///< R, experts per token
  int groups = 1;         ///< the experts lie in this many equal groups …
  int group_topk = 1;     ///< … of which a token uses this many
  bool sigmoid = true;    ///< scores: sigmoid of each logit; else softmax over the experts
  bool normalise = true;  ///< weights of a token sum to `scaling`
  double scaling = 1;     ///< factor of all weights
  double aux_coeff = 0;   ///< load-balancing loss, see router_losses
  double z_coeff = 0;     ///< z loss
  double aux_scale = 1;   ///< 1 / (microbatches * ranks): these losses are means over the step
  RowTokens rows = {};    ///< ranks may share the tokens' rows out
  ForcedLoad load = ForcedLoad::none;  ///< for benchmarks: experts are drawn …
  int layer = 0;                       ///< … each layer others
};

/// In all of these: logits (n, E) in an accumulation dtype ("accum": fp32 or fp64), E experts, R
/// experts per token, cu_seqlens (C + 1) int32; N = cu_seqlens[C] tokens are routed, later ones are
/// the tail. The n rows may be a part of the tokens; `offsets` count all N.

/// indices (n, R) int32: the R experts with the largest score + bias, largest first, ties to the
/// lower index; -1 for tail tokens. bias (E) accum may be absent. With groups, only experts of the
/// group_topk groups with the largest sum of their two best are candidates. With a forced load
/// instead the R experts with the smallest detail::forced_key, smallest first, ties to the lower
/// index, whatever scores, bias and groups are. Selection has no gradient. weights, which may be
/// absent, are those of router_weights.
void router_select(execution::Queue& queue, const RouterOptions& options,
                   const execution::View& logits, const execution::View& bias,
                   const execution::View& cu_seqlens, const execution::View& indices,
                   const execution::View& weights = {});

/// weights (n, R) accum: s_r = score of the r-th chosen expert (without bias); with `normalise`
/// s_r / (sum of the token's s + 1e-20); times scaling. 0 where the index is -1.
void router_weights(execution::Queue& queue, const RouterOptions& options,
                    const execution::View& logits, const execution::View& indices,
                    const execution::View& weights);

/// dlogits (n, E) accum from the gradient of the weights and of both losses. dweights_rows (n * R)
/// accum is in the order of the routed rows; token_row (n, R) and offsets (E + 1) are those of
/// permute_index. Stored; 0 for tail tokens.
void router_backward(execution::Queue& queue, const RouterOptions& options,
                     const execution::View& dweights_rows, const execution::View& token_row,
                     const execution::View& logits, const execution::View& indices,
                     const execution::View& weights, const execution::View& offsets,
                     const execution::View& cu_seqlens, const execution::View& dlogits);

/// losses (2) accum = {aux, z}, times aux_scale, stored or added:
///
///   aux = aux_coeff * E * sum_e f_e P_e   f_e: share of the N R choices, P_e: mean over tokens of
///                                         the scores, scaled to sum 1 per token (Switch eq. 4)
///   z = z_coeff * mean over tokens of logsumexp(logits)^2      (ST-MoE, arXiv 2202.08906 eq. 5)
///
/// Both are 0 without routed tokens. Their gradient is in router_backward.
void router_losses(execution::Queue& queue, const RouterOptions& options,
                   const execution::View& logits, const execution::View& offsets,
                   const execution::View& cu_seqlens, const execution::View& losses,
                   bool accumulate);

/// `accumulation` is the dtype of the logits. With `weights` these are chosen in the same pass.
execution::Cost router_select_cost(std::int64_t tokens, const RouterOptions& options,
                                   execution::Dtype accumulation, bool weights);
execution::Cost router_weights_cost(std::int64_t tokens, const RouterOptions& options,
                                    execution::Dtype accumulation);
execution::Cost router_backward_cost(std::int64_t tokens, const RouterOptions& options,
                                     execution::Dtype accumulation);
execution::Cost router_losses_cost(std::int64_t tokens, const RouterOptions& options,
                                   execution::Dtype accumulation);

/// Host references; A is float or double, `routed` points to cu_seqlens[C].
template <class A>
void router_select_ref(std::int64_t tokens, const RouterOptions& options, const A* logits,
                       const A* bias, const std::int32_t* routed, std::int32_t* indices);
template <class A>
void router_weights_ref(std::int64_t tokens, const RouterOptions& options, const A* logits,
                        const std::int32_t* indices, A* weights);
template <class A>
void router_backward_ref(std::int64_t tokens, const RouterOptions& options, const A* dweights_rows,
                         const std::int32_t* token_row, const A* logits,
                         const std::int32_t* indices, const A* weights, const std::int32_t* offsets,
                         const std::int32_t* routed, A* dlogits);
template <class A>
void router_losses_ref(std::int64_t tokens, const RouterOptions& options, const A* logits,
                       const std::int32_t* offsets, const std::int32_t* routed, A* losses,
                       bool accumulate);

}  // namespace stowage::kernels
