#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/mixers/layer.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {

/// Name of the logits (n, V) accum that an evaluation leaves behind, if its program has them.
inline constexpr const char* kLogits = "logits";

/// Name of the sum (2) accum of hits and counted targets of an evaluation, if its program has it: a
/// hit is a target whose logit is the largest.
inline constexpr const char* kHits = "hits";

/// Name of the sum (2) accum of z-losses and counted targets, if a program has it.
inline constexpr const char* kZLoss = "z_loss";

/// Final norm, output projection and cross-entropy. The projection is fused with the loss and its
/// gradients, in chunks of rows, so that the logits of a microbatch never exist at once.
class Head {
 public:
  /// @param embedding whose weight is the projection's too if they are tied
  /// @param norm name of the norm's weight  @param hands_on hidden() is asked for in backward
  Head(const ModelConfig& config, const parallel::Ranks& ranks, const Parameter& embedding,
       std::string norm, bool hands_on);

  /// In backward order. Without the output weight if it is the embedding.
  std::vector<Parameter> parameters() const;
  /// Without the output weight, which several heads have in common.
  std::vector<Parameter> own_parameters() const { return {norm_}; }

  /// Loss of each token (n) accum, and its gradients for backward(). Where ranks share the
  /// vocabulary each knows the losses of all tokens.
  Tensor forward(Recorder& recorder, Stream stream) const;
  /// The normed rows of the stream (rows, D): of forward() or evaluate().
  Tensor hidden(Recorder& recorder) const { return recorder.kept<Saved>(*this).normed; }
  /// z-loss of each token (n) accum, of forward() or evaluate(); none unless the model has one.
  Tensor z_losses(Recorder& recorder) const { return recorder.kept<Saved>(*this).z_losses; }
  /// @param dhidden gradient of hidden() from elsewhere, or none
  /// @return gradient of the stream's sum
  Tensor backward(Recorder& recorder, Tensor dhidden = {}) const;
  /// Loss of each token alone; and the logits where the program has kLogits, hits where it has
  /// kHits.
  Tensor evaluate(Recorder& recorder, Stream stream) const;
  /// The logits of all rows, which the program has as kLogits, alone.
  void decode(Recorder& recorder, Stream stream) const;

 private:
  struct Saved {
    Tensor sum, rstd, normed, dnormed, z_losses;
  };

  Tensor norm(Recorder& recorder, Stream stream) const;
  /// The weight of the z-loss. Further tokens have none.
  double z_coeff(const Recorder& recorder) const {
    return recorder.batch().depth == 0 ? z_loss_coeff_ : 0;
  }
  /// Room for z_losses(), if there are any.
  Tensor add_z_losses(Recorder& recorder) const;
  /// The fused head on all tokens. @param dnormed none: the losses alone, and hits if given
  Tensor fused(Recorder& recorder, Tensor normed, Tensor dnormed, Tensor hits) const;
  /// The same where ranks share the vocabulary.
  Tensor sharded(Recorder& recorder, Tensor normed, Tensor dnormed, Tensor hits) const;

  std::int64_t width_;
  int layers_;  ///< of the model
  SharedRows rows_;
  std::shared_ptr<const parallel::RankGroup> group_;
  std::int64_t vocabulary_;  ///< of this rank
  double epsilon_;
  bool zero_centred_;
  bool tied_;
  bool hands_on_;
  double z_loss_coeff_;
  Parameter norm_;
  Parameter output_;
};

}  // namespace stowage::layers
