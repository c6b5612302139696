#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "layers/head.hpp"
#include "layers/layer.hpp"

namespace stowage::layers {

/// The hybrid model: embedding, residual blocks by pattern, final norm, head with loss. It never
/// changes: what a recording keeps belongs to its recorder.
class Model {
 public:
  /// @param aux_scale 1 / (microbatches * ranks with other sequences), for the auxiliary losses of
  /// routers  @param ranks that share it; the model has this one's part
  /// @throws Error (exit 2) for a letter that is not in "M*-E|", or what does not divide
  Model(const ModelConfig& config, Precision precision, double aux_scale,
        const parallel::Ranks& ranks = parallel::planned_ranks({}, 0));

  const ModelConfig& config() const { return config_; }
  const parallel::Ranks& ranks() const { return ranks_; }
  Precision precision() const { return precision_; }
  /// All parameters, in the order in which backward finishes their gradients.
  std::vector<Parameter> parameters() const;
  /// Persistent tensors besides parameters and what the optimizer adds: expert biases.
  std::vector<execution::TensorInfo> states() const;

  /// Records forward and, fused with the head's gradients, the loss. @return losses (n) accum
  Tensor forward(Recorder& recorder) const;
  /// Called after the ops that finish the gradients of some parameters.
  using Finished = std::function<void(std::span<const Parameter>)>;
  /// Records backward of the microbatch whose forward was recorded last in this slot.
  void backward(Recorder& recorder, const Finished& finished) const;
  /// Records forward up to the loss alone. @return losses (n) accum
  Tensor evaluate(Recorder& recorder) const;

  /// True if routers have a load-balancing or a z loss.
  bool has_router_losses() const;
  /// Counts of a training step that ranks add up: loads of experts.
  std::vector<Tensor> step_counts(Recorder& recorder) const;
  /// Work at the end of a training step, when step_ok is known.
  void end_of_step(Recorder& recorder, Tensor step_ok) const;

 private:
  Stream trunk(Recorder& recorder) const;
  Tensor embed(Recorder& recorder) const;
  /// Tokens as rows of the part of the table that this rank has; -1: another rank's.
  Tensor local_tokens(Recorder& recorder, const char* name) const;

  ModelConfig config_;
  Precision precision_;
  parallel::Ranks ranks_;
  SharedRows rows_;
  Parameter embedding_;
  std::vector<Layer> layers_;
  Head head_;
};

}  // namespace stowage::layers
