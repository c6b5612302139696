#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// The output projection fused with the cross-entropy loss and both gradients:
///
///   logits = h w^T,  losses_t = logsumexp(logits_t) - logits_t[target_t]
///   dlogits = (softmax(logits) - onehot(target)) * scale,  dh = dlogits w,  dw = dlogits^T h
///
/// With `z_coeff` the z-loss of PaLM (arXiv 2204.02311, section 5) is minimised beside it; it is an
/// output of its own, and losses stay the cross-entropy:
///
///   z_losses_t = z_coeff * logsumexp(logits_t)^2
///   dlogits += 2 z_coeff logsumexp(logits_t) * softmax(logits) * scale
///
/// targets are in [0, V), or negative for a token that counts nothing (its losses and its row of dh
/// are 0). dw is stored or, with `accumulate`, added to. Without `gradients`, for evaluation, there
/// are the losses alone; and, where it is asked for, hits: 1 for a counted token of which no logit
/// is above the target's, else 0.
///
/// Works through chunks of rows, so the logits of all tokens never exist; logits and softmax are
/// kept in the accumulation dtype, dlogits too on the host; a GPU rounds dlogits to the storage
/// dtype, because both gradients are products on tensor cores.
struct LinearCrossEntropy {
  static constexpr std::string_view kName = "linear_cross_entropy";
  std::int64_t tokens, vocabulary, width;
  execution::Dtype storage;
  bool gradients, accumulate;
  bool with_hits = false;
  double z_coeff = 0;  ///< 0: no z-loss

  template <class T>
  struct Operands {
    In<T> h, w;
    Of<T, const std::int32_t> targets;
    SumsIn<T> scale;
    SumsOut<T> losses;
    Out<T> dh;
    SumsOut<T> dw, workspace, hits, z_losses;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("h", storage, {tokens, width}), o.h...);
    f(in("w", storage, {vocabulary, width}), o.w...);
    f(in("targets", execution::Dtype::int32, {tokens}), o.targets...);
    f(in("scale", sums, {1}).when(gradients), o.scale...);
    f(out("losses", sums, {tokens}), o.losses...);
    f(out("dh", storage, {tokens, width}).when(gradients), o.dh...);
    f(sum("dw", accumulate, sums, {vocabulary, width}).when(gradients), o.dw...);
    f(workspace(workspace_bytes()), o.workspace...);
    f(out("hits", sums, {tokens}).when(with_hits), o.hits...);
    f(out("z_losses", sums, {tokens}).when(z_coeff > 0), o.z_losses...);
  }
  /// For the logits of one chunk of rows.
  std::size_t workspace_bytes() const;
  std::string fault() const { return vocabulary > 0 ? "" : "the vocabulary is empty"; }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
