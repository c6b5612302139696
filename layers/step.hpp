#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "execution/persistent.hpp"
#include "execution/program.hpp"
#include "layers/model.hpp"

namespace stowage::layers {

/// Sizes of one kind of step on one rank.
struct StepShape {
  std::int64_t tokens = 0;    ///< n = B * T of a microbatch
  std::int64_t sequence = 0;  ///< T; attention's cost is counted for whole sequences
  std::int64_t capacity = 1;  ///< C, documents of a microbatch
  int microbatches = 1;       ///< of a step

  /// (query, key) pairs of causal attention in n / T whole sequences.
  std::int64_t attention_pairs() const { return tokens * (sequence + 1) / 2; }
};

/// AdamW and clipping (Loshchilov and Hutter, arXiv 1711.05101).
struct OptimizerConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double clip = 1.0;  ///< largest global norm of the gradient; 0: none
};

/// How ranks combine a tensor.
enum class Reduction : unsigned char { sum, min };

/// Makes the op that combines tensors, contiguous in memory if several, over the ranks of the data
/// axis. Empty: there is one rank.
using AllReduce = std::function<execution::Op(const Program&, std::string name,
                                              std::span<const Tensor> tensors, Reduction)>;

/// What the host tells a step. It travels in step_ok, so that ranks agree to stop by the reduction
/// that they make anyway.
inline constexpr std::int32_t kGoOn = 2;
inline constexpr std::int32_t kStopAfter = 1;

/// A training step as a program, with the handles that the host stages and reads.
struct TrainingProgram {
  Program program{"train"};
  StepShape shape;
  // Inputs. With M microbatches the first three have a leading extent M if M > 1.
  Tensor tokens;      ///< (n) int32
  Tensor targets;     ///< (n) int32, -1: counts in no loss
  Tensor cu_seqlens;  ///< (C + 1) int32
  Tensor loss_scale;  ///< (1) accum, 1 / counted targets of the step over all ranks
  Tensor schedule;    ///< (2) accum, learning rate and weight decay
  Tensor go_on;       ///< (1) int32, kGoOn, or kStopAfter if this rank was asked to stop
  // Outputs.
  Tensor loss;       ///< (2) accum, sum of losses and number of counted targets over all ranks
  Tensor grad_norm;  ///< (1) accum, before clipping
  Tensor
      router_losses;  ///< (2) accum, load-balancing and z loss over all routers, microbatches and
                      ///< ranks; none if the model has neither
  Tensor step_ok;     ///< (1) int32, least of all ranks' go_on; 0: the step changed nothing
};

TrainingProgram record_training(Model& model, const StepShape& shape,
                                const OptimizerConfig& optimizer,
                                const execution::PersistentLayout& layout,
                                const AllReduce& all_reduce);

/// An evaluation step: the loss of some microbatches, nothing changed.
struct EvaluationProgram {
  Program program{"evaluate"};
  StepShape shape;
  Tensor tokens, targets, cu_seqlens;  ///< as in training
  Tensor loss;                         ///< (2) accum
};

EvaluationProgram record_evaluation(Model& model, const StepShape& shape,
                                    const AllReduce& all_reduce);

}  // namespace stowage::layers
