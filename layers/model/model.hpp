#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "layers/mixers/layer.hpp"
#include "layers/model/embedding.hpp"
#include "layers/model/head.hpp"
#include "layers/model/mtp.hpp"
#include "layers/model/stages.hpp"
#include "parallel/groups/ranks.hpp"

namespace stowage::layers {

/// Name of the output of training steps with tokens of each expert, (layers of experts, E) accum:
/// those of all ranks and microbatches, in the order of the model. Only if ModelConfig asks for it.
inline constexpr const char* kRouterLoad = "router_load";

/// The hybrid model: embedding, residual blocks by pattern, final norm, head with loss, and heads
/// that predict further tokens. It never
/// changes: what a recording keeps belongs to its recorder.
///
/// A rank of a pipeline computes one or more stages of it; names and indices of layers are those of
/// the whole.
class Model {
 public:
  /// @param aux_scale 1 / (microbatches * ranks with other sequences), for the auxiliary losses of
  /// routers  @param ranks that share it: the model has this one's part, of its pipeline stages
  /// @throws Error (exit 2) for a letter that is no kind's, or what does not divide
  Model(const ModelConfig& config, Precision precision, double aux_scale,
        const parallel::Ranks& ranks = parallel::planned_ranks({}, 0));

  const ModelConfig& config() const { return config_; }
  Precision precision() const { return precision_; }
  const parallel::Ranks& ranks() const { return ranks_; }
  /// What this rank computes, in the order of the model.
  const std::vector<Stage>& stages() const { return stages_; }
  /// The ends of the model, with its tokens and its loss: whether they are this rank's.
  bool has_embedding() const { return stages_.front().embedding; }
  bool has_head() const { return stages_.back().head; }
  /// Depths of heads of further tokens (Mtp); they stand with the head.
  int further_depths() const { return mtp_ ? mtp_->depths() : 0; }
  /// Whether this rank's stages read tokens: for the embedding, or for heads of further tokens.
  bool reads_tokens() const { return has_embedding() || (has_head() && mtp_); }
  /// The parameters that this rank has, in the order in which backward finishes their gradients.
  std::vector<Parameter> parameters() const { return parameters(stages_); }
  /// Those of all stages, each once.
  std::vector<Parameter> whole_parameters() const { return parameters({whole()}); }
  /// Persistent tensors besides parameters and what the optimizer adds: expert biases.
  std::vector<execution::TensorInfo> states() const { return states(stages_); }
  std::vector<execution::TensorInfo> whole_states() const { return states({whole()}); }
  /// What decode() keeps of each sequence from one of its tokens to the next.
  std::vector<execution::TensorInfo> sequence_states(const DecodeShape& shape) const;
  /// The embedding's weight, which is the head's too where they are tied.
  const Parameter& embedding() const { return embedding_.weight(); }
  /// The layer of the whole model that a parameter belongs to. -1 is the embedding,
  /// config().layers() the head, with the heads of further tokens.
  int part_of(const std::string& parameter) const;
  /// Whether the head's end of the model has the embedding's weight: it is tied, or heads of
  /// further tokens read it.
  bool head_has_embedding() const { return config_.tied_embeddings || mtp_; }
  /// True if this rank has the embedding's weight for one end of the model and another rank for the
  /// other: their gradients are to be added. backward() leaves that, and calling `finished`, to the
  /// step.
  bool shares_embedding() const;

  /// Records forward of one of this rank's stages and, on the last one fused with the head's
  /// gradients, the loss.
  /// @param in (rows, D) the residual stream from the stage before; none on the first
  /// @return losses (n) accum on the last stage; elsewhere the residual stream (rows, D)
  Tensor forward(Recorder& recorder, const Stage& stage, Tensor in = {}) const;
  /// Called after the ops that finish the gradients of some parameters, with whether the layer that
  /// comes next begins with an exchange, which must not wait for sums of gradients.
  using Finished = std::function<void(std::span<const Parameter>, bool exchange_follows)>;
  /// Called after the ops that make all that a microbatch adds to the gradients of some parameters.
  using Stored = std::function<void(std::span<const Parameter>)>;
  /// Records backward of the microbatch whose forward was recorded last in this slot.
  /// @param dout (rows, D) gradient of what forward returned; none on the last stage
  /// @return gradient of what it was given; none on the first stage
  Tensor backward(Recorder& recorder, const Stage& stage, Tensor dout, const Finished& finished,
                  const Stored& stored = {}) const;
  /// Records what backward has left for later of the gradients of layers' weights, which finishes
  /// those of all of a layer's parameters.
  void backward_weights(Recorder& recorder, const Stage& stage, const Finished& finished,
                        const Stored& stored = {}) const;
  /// z-loss of each token (n) accum, of the microbatch whose forward or evaluate was recorded last
  /// in this slot, on the last stage; none unless the model has one.
  Tensor z_losses(Recorder& recorder) const { return head_.z_losses(recorder); }
  /// As forward, up to the loss alone.
  Tensor evaluate(Recorder& recorder, const Stage& stage, Tensor in = {}) const;
  /// Records one more token of each sequence, on the one rank that has the whole model, up to its
  /// logits.
  /// @throws Error (exit 2) for a letter whose kind has no such form
  void decode(Recorder& recorder) const;
  /// Name of the module that a stage's input belongs to when it is saved for backward.
  std::string_view input_module(const Stage& stage) const;

  /// True if ranks exchange whole rows before a layer's backward can do much: those of experts.
  /// Rows of tensor ranks come in pieces, between which nothing should be, and context ranks
  /// exchange later, so that sums kept back for them would begin too late.
  bool backward_begins_with_exchange(int layer) const;
  /// True if several ranks share the experts of its layers, whichever stage has them.
  bool shares_experts() const;
  /// True if routers have a load-balancing or a z loss.
  bool has_router_losses() const;
  /// Counts of a training step that ranks add up: loads of experts. All ranks have as many elements
  /// in the same order: those of other stages are zeros. end_of_step() tells them to the host if
  /// the model's configuration asks for that.
  std::vector<Tensor> step_counts(Recorder& recorder) const;
  /// Work at the end of a training step, when step_ok is known.
  void end_of_step(Recorder& recorder, Tensor step_ok) const;

 private:
  /// What step_counts() gave, for end_of_step().
  struct StepCounts {
    std::vector<Tensor> all;
  };

  void tell_router_load(Recorder& recorder) const;
  Stage whole() const { return {0, 0, static_cast<int>(layers_.size()), true, true}; }
  std::vector<Parameter> parameters(const std::vector<Stage>& stages) const;
  std::vector<execution::TensorInfo> states(const std::vector<Stage>& stages) const;
  std::span<const Layer> layers(const Stage& stage) const;
  Stream trunk(Recorder& recorder, const Stage& stage, Tensor in) const;
  /// The stream as one tensor, for the next stage, which does not see how it was made.
  Tensor hand_on(Recorder& recorder, const Stage& stage, Stream stream) const;

  ModelConfig config_;
  Precision precision_;
  parallel::Ranks ranks_;
  std::vector<Stage> stages_;
  Embedding embedding_;
  std::vector<Layer> layers_;
  Head head_;
  std::optional<Mtp> mtp_;
};

}  // namespace stowage::layers
