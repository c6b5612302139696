#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "execution/persistent.hpp"
#include "execution/program.hpp"
#include "kernels/optimizer/guard.hpp"
#include "kernels/optimizer/newton_schulz.hpp"
#include "layers/model/model.hpp"
#include "layers/schedule/passes.hpp"
#include "layers/state/optimizer.hpp"
#include "layers/state/sharing.hpp"

namespace stowage::layers {

/// Numbers of Muon.
struct MuonConfig {
  double momentum = 0.95;
  bool nesterov = true;
  int steps = 5;
  std::vector<double> coefficients = {3.4445, -4.7750, 2.0315};  ///< a, b, c
  /// What nearly orthogonal matrices of so many rows and columns are multiplied by.
  enum class Scale : unsigned char {
    rms,    ///< 0.2 sqrt(max(rows, columns)): the RMS of AdamW's updates (arXiv 2502.16982)
    aspect  ///< sqrt(max(1, rows / columns))
  } scale = Scale::rms;
  /// What is a matrix by itself of a weight that is several projections.
  enum class Split : unsigned char { none, projections, heads } split = Split::projections;
  double lr_factor = 1;  ///< of the learning rate, of matrices

  kernels::NewtonSchulzOptions iterations() const {
    return {{coefficients.at(0), coefficients.at(1), coefficients.at(2)}, steps};
  }
  double scale_of(std::int64_t rows, std::int64_t columns) const;
};

/// Numbers of the optimizer, and clipping.
struct OptimizerConfig {
  double beta1 = 0.9;  ///< of AdamW
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  ///< of matrices; the host tells it to every step
  double clip = 1.0;          ///< largest global norm of the gradient; 0: none
  /// Of parameters by name (parameter_factors.hpp). Those with a factor 0 of the learning rate are
  /// frozen: neither updated nor part of the norm.
  std::vector<std::string> lr_factors = {}, decay_factors = {};
  /// Elements that one op updates at most where a state has its home on the host; a multiple of
  /// execution::kBucketGrain.
  std::int64_t window_elements = std::int64_t{16} << 20;
  /// The host says what it knows of the steps before (TrainingProgram::attempt), so that a step
  /// that changed nothing can be done again from the same state though the next one is under way.
  bool attempts = false;
  /// Ranks keep what they alone added to the loss (own_loss) and, for one more read of the
  /// gradients, to these (own_norm): the rank of an error is told by them.
  bool own_loss = false;
  bool own_norm = false;
  /// The norm of each part's gradients is told (kGradientNorms).
  bool part_norms = false;
  /// What each of so many steps changes the weights of each part by is told: the host asks for it
  /// (TrainingProgram::asked). 0: of none.
  std::int64_t update_norms = 0;
  std::uint64_t seed = 0;  ///< of what is rounded stochastically
  double ema_decay = 0;  ///< of the average of the weights, from one good step to the next; 0: none
  MuonConfig muon = {};
  kernels::SpikeRule spikes = {};  ///< with a factor, spikes are skipped; needs attempts
};

/// Output of a training step, (2 + layers) accum: norms of the gradients, before clipping, of the
/// embedding, of each layer of the whole model and of the head. 0 of what is frozen.
inline constexpr const char* kGradientNorms = "gradient_norms";

/// Output of a training step, (2 + layers) fp64: of the same parts, sums of squares of what the
/// step has changed the weights by. Where ranks share out gradients (shares_gradients) they are of
/// what this rank answers for, and those of all ranks add up; else each rank has the whole model's.
/// 0 of what is frozen, of a step that changed nothing, and where the host has not asked.
inline constexpr const char* kUpdateSquares = "update_squares";
/// Whether no rank answers for all gradients.
inline bool shares_gradients(const Sharing& sharing) {
  return sharing.zero || !sharing.ranks.whole_model();
}

/// What the host tells a step. It travels in step_ok, so that ranks agree to stop or to save by the
/// reduction that they make anyway: the least of what they were told.
inline constexpr std::int32_t kGoOn = 3;
inline constexpr std::int32_t kSaveAfter = 2;
inline constexpr std::int32_t kStopAfter = 1;

/// A training step as a program, with the handles that the host stages and reads.
struct TrainingProgram {
  Program program{"train"};
  StepShape shape;
  // Inputs.
  StackedInputs inputs;
  Tensor loss_scale;  ///< (1) accum, 1 / counted targets of the step over all ranks
  Tensor schedule;    ///< (2) accum, learning rate and weight decay
  Tensor go_on;       ///< (1) int32, kGoOn, or kSaveAfter or kStopAfter if this rank was asked to
  Tensor attempt;     ///< (2) int64, kernels::Attempt; none without OptimizerConfig::attempts
  Tensor asked;       ///< (1) int32, 0: no kUpdateSquares of this step; none without update_norms
  // Outputs.
  Tensor loss;       ///< (2) accum, sum of losses and number of counted targets over all ranks
  Tensor grad_norm;  ///< (1) accum, before clipping
  Tensor
      router_losses;  ///< (2) accum, load-balancing and z loss over all routers, microbatches and
                      ///< ranks; none if the model has neither
  std::vector<Tensor> mtp_losses;  ///< (2) accum each, as `loss`, by depth (layers/model/mtp.hpp)
  Tensor z_loss;                   ///< (2) accum, kZLoss; none if the model has none
  Tensor source_losses;  ///< (2 sources) accum, kSourceLosses, by source; none unless asked for
  Tensor step_ok;        ///< (1) int32, least of all ranks' go_on; 0: the step changed nothing
  Tensor expert_rows;  ///< (4) int32: ranks without room for all rows of their experts, which clear
      ///< step_ok; the most rows that a rank's experts, and one expert, were to get
      ///< of a layer and microbatch, and the most slots that a rank wanted of what it
      ///< sends to another. None if no ranks share experts
  kernels::ExpertCapacity expert_capacity;
  double expert_bytes = 0;  ///< that this rank exchanges in layers of experts
  // None if OptimizerConfig does not ask for them; the second none on one rank.
  Tensor own_loss;  ///< (2) accum, what this rank added to `loss`
  Tensor own_norm;  ///< (1) accum, norm of its gradients before ranks add them up
};

/// The step of this rank's stages of the model.
/// @param rule by which parameters change
/// @param layout, sharing the program refers to the layout, which outlives it; not to the sharing
TrainingProgram record_training(const Model& model, const StepShape& shape, const Optimizer& rule,
                                const OptimizerConfig& optimizer,
                                const execution::PersistentLayout& layout, const Sharing& sharing);

/// The logits that an evaluation leaves behind: of all tokens of its last microbatch, or none.
enum class Logits : unsigned char { none, all };

/// An evaluation step: the loss of some microbatches, nothing changed.
struct EvaluationProgram {
  Program program{"evaluate"};
  StepShape shape;
  StackedInputs inputs;
  Tensor loss;                     ///< (2) accum
  std::vector<Tensor> mtp_losses;  ///< (2) accum each, if asked for
  Tensor z_loss;                   ///< (2) accum, as above
  Tensor hits;                     ///< (2) accum, targets whose logit is the largest, and targets
  Tensor logits;                   ///< (n, V) accum, if asked for
};

EvaluationProgram record_evaluation(const Model& model, const StepShape& shape,
                                    const execution::PersistentLayout& layout,
                                    const Sharing& sharing, Logits logits = Logits::none);

}  // namespace stowage::layers
