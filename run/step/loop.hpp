#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "execution/timing.hpp"
#include "inputs/data/run_data.hpp"
#include "layers/step/learning_rate.hpp"
#include "run/step/trainer.hpp"

namespace stowage::run {

/// What a step did with the rows of experts that ranks share.
struct ExpertReport {
  double capacity = 0;        ///< rows that a rank had room for, over those if the load is balanced
  int reruns = 0;             ///< of the step before there was room
  double busiest_rank = 0;    ///< most rows of a rank in a layer and microbatch, over balanced ones
  double busiest_expert = 0;  ///< likewise of an expert
  double exchanged_bytes = 0;  ///< for experts, by this rank, reruns included
};

/// The first attempt at a step that was done again since it was bad: its gradient was not finite,
/// or its norm a spike. A bad step changes nothing, so both attempts begin with the same state.
struct FirstAttempt {
  double loss = 0;
  double grad_norm = 0;
  bool same_bits = true;      ///< as the second one: the cause lies in the state or in the tokens
  bool same_own_loss = true;  ///< likewise, of what this rank alone added to the loss
  bool same_own_norm = true;  ///< and of the gradients that it alone has made, if there are several
};

/// What is known of a training step when it is done.
struct StepReport {
  std::int64_t step = 0;   ///< counted from 1
  double loss = 0;         ///< mean over the counted targets of all ranks
  double aux_loss = 0;     ///< load balancing, over all routers; not part of `loss`
  double z_loss = 0;       ///< of router logits; not part of `loss`
  double head_z_loss = 0;  ///< of the next tokens' logits; not part of `loss`
  /// By depth, of heads of further tokens: mean over the counted targets; not part of `loss`
  std::vector<double> mtp_losses;
  double grad_norm = 0;  ///< before clipping
  double lr = 0;
  double time_s = 0;                ///< from the end of the step before to its own end
  bool ok = true;                   ///< false: it changed nothing
  bool stop = false;                ///< a rank was asked to stop before this step
  bool save = false;                ///< a rank was asked to save, and none to stop
  double pairs = 0;                 ///< (query, key) pairs within documents, on this rank
  double tokens = 0;                ///< of documents, on all ranks
  double tokens_seen = 0;           ///< likewise, of all steps until its end
  std::int64_t capacity = 0;        ///< documents that a microbatch of its program has room for
  std::int64_t passed_batches = 0;  ///< before its own, since none of their tokens is a target
  /// Its time counts in no figure: ops were timed, a dump was made, or the step was done twice.
  bool disturbed = false;
  ExpertReport experts;                ///< if ranks share experts
  std::vector<double> router_load;     ///< tokens of each expert, layer by layer, if they are told
  std::vector<double> gradient_norms;  ///< of embedding, layers and head, if they are told
  /// Of the same parts, if this step is asked: sums of squares of what it has changed, of this rank
  /// (layers::kUpdateSquares).
  std::vector<double> update_squares;
  std::vector<double> activation_norms;  ///< RMS of what layers and head read, if they are told
  /// By source of data, if they are told: the sum of losses, and counted targets.
  std::vector<std::array<double, 2>> source_losses;
  std::optional<FirstAttempt> first;  ///< of a step that was done again; all else is of the second
};

/// What held-out data show.
struct Evaluation {
  double loss = 0;      ///< mean over the counted targets
  double accuracy = 0;  ///< part of them whose logit is the largest
  double tokens = 0;    ///< of held-out documents that were read, on all ranks
  double targets = 0;   ///< of them, those that are counted
  /// By depth of multi-token prediction, if asked for: the sum of losses, and targets.
  std::vector<std::array<double, 2>> further = {};
};

/// What all validation sets show together, and each one if the deck names them.
struct Evaluations {
  Evaluation all;
  struct Named {
    std::string name;
    Evaluation found;
  };
  std::vector<Named> sets;
};

/// Issues training steps one ahead of the step whose results are read, and evaluations. A step
/// whose experts lacked room for their rows is done again with more; it has changed nothing, and
/// the one that was issued behind it finds so and changes nothing either.
class Loop {
 public:
  /// What becomes of a bad step. Both leave the same state, unless the cause has gone.
  enum class Bad { skipped, done_again };

  /// @param bad done_again: the programs need OptimizerConfig::attempts
  Loop(Trainer& trainer, inputs::Data& data, const layers::LearningRate& learning_rate,
       double weight_decay, Bad bad = Bad::skipped);

  /// What this rank was asked to do after a step.
  enum class Then : std::int32_t {
    stop = layers::kStopAfter,
    save = layers::kSaveAfter,
    go_on = layers::kGoOn
  };

  /// Issues step `step` (from 0).
  /// @param then all ranks learn the least of them from the report of this step
  /// @return the report of the step before, if one was under way
  std::optional<StepReport> issue(std::int64_t step, Then then = Then::go_on);
  /// The executor that the next step will run on.
  execution::Executor& next();
  /// Waits for the step under way. @return its report, if there was one
  std::optional<StepReport> drain();
  /// The state was set anew; no step may be under way.
  void state_set() { good_steps_.reset(); }
  /// Over the first `batches` global batches of each held-out set (0: all of them). No step may be
  /// under way.
  Evaluations evaluate(std::int64_t batches);
  /// The next step is timed from now on: something else took the time before.
  void restart_clock();
  /// The next step is timed from when this happens, which the device works on; it must live until
  /// that step is done.
  void restart_clock(execution::TimedEvent& from) { from_ = &from; }
  /// When the last step ended, or the clock was restarted.
  double clock_s() const { return last_end_s_; }

 private:
  struct Pending {
    execution::Executor* executor;
    const layers::TrainingProgram* recorded;
    std::int64_t step;
    Then then;
    int capacity_class;
    inputs::LoaderPosition position;  ///< of its data
    double lr;
    std::int64_t passed_batches = 0;
    double pairs = 0;
    double tokens = 0;
    bool asked = false;           ///< for what it changes
    std::int64_t good_steps = 0;  ///< that it expects
    ExpertReport experts = {};
  };
  /// Issues the loader's next step, `step` (from 0).
  Pending start(std::int64_t step, Then then, const kernels::Attempt& attempt);
  /// What a step said of itself, to be compared to the bit.
  struct Outcome {
    StepReport report;
    std::vector<double> values;    ///< of all ranks
    std::vector<double> own_loss;  ///< of this rank
    std::vector<double> own_norm;  ///< likewise; empty if there is no other
  };
  struct Settled {
    StepReport report;
    bool redone = false;
  };
  /// Reads a step that is over, and does it again where its experts lacked room or it was bad.
  Settled settle(Pending pending, int ago);
  Outcome read(const Pending& pending, int ago);
  /// The report of a bad step that is done once more, for the last time.
  StepReport again(const Pending& pending, const Outcome& first);
  /// Of one held-out set; loss and accuracy are sums still.
  Evaluation sums_of(const inputs::Data::HeldOut& set, std::int64_t batches);
  /// Chooses the class of the next step. @return whether this one had room
  bool judge(Pending& pending, int ago);
  /// Of a step that is done again at most for want of room, or also since it is bad.
  kernels::Attempt first_attempt(std::int64_t good_steps) const;
  /// Steps that changed the state so far, of which none may be under way.
  std::int64_t good_steps();

  Trainer& trainer_;
  inputs::Data& data_;
  layers::LearningRate learning_rate_;
  double weight_decay_;
  int capacity_class_ = 0;                  ///< of the next step
  std::optional<std::int64_t> good_steps_;  ///< if the host knows them while no step is under way
  Bad bad_;
  bool guarded_;  ///< steps learn how many good ones the host believes to be done
  std::optional<Pending> pending_;
  double last_end_s_;
  execution::TimedEvent* from_ = nullptr;  ///< if not null, the time of this instead
};

}  // namespace stowage::run
