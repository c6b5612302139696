#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "drivers/common/data.hpp"
#include "layers/schedule.hpp"
#include "layers/trainer.hpp"

namespace stowage::drivers {

/// What a step did with the rows of experts that ranks share.
struct ExpertReport {
  double capacity = 0;        ///< rows that a rank had room for, over those if the load is balanced
  int reruns = 0;             ///< of the step before there was room
  double busiest_rank = 0;    ///< most rows of a rank in a layer and microbatch, over balanced ones
  double busiest_expert = 0;  ///< likewise of an expert
  double exchanged_bytes = 0;  ///< for experts, by this rank, reruns included
};

/// What is known of a training step when it is done.
struct StepReport {
  std::int64_t step = 0;  ///< counted from 1
  double loss = 0;        ///< mean over the counted targets of all ranks
  double aux_loss = 0;    ///< load balancing, over all routers; not part of `loss`
  double z_loss = 0;      ///< of router logits; not part of `loss`
  double grad_norm = 0;   ///< before clipping
  double lr = 0;
  double time_s = 0;       ///< from the end of the step before to its own end
  bool ok = true;          ///< false: it changed nothing
  bool stop = false;       ///< a rank was asked to stop before this step
  bool save = false;       ///< a rank was asked to save, and none to stop
  double pairs = 0;        ///< (query, key) pairs within documents, on this rank
  bool disturbed = false;  ///< its time counts in no figure: ops were timed, or a dump was made
  ExpertReport experts;    ///< if ranks share experts
};

/// What held-out data show.
struct Evaluation {
  double loss = 0;      ///< mean over the counted targets
  double accuracy = 0;  ///< part of them whose logit is the largest
};

/// Issues training steps one ahead of the step whose results are read, and evaluations. Where the
/// experts of a step may lack room for their rows, nothing is issued before it is known that they
/// did not, and a step that lacked it is done again with more.
class Loop {
 public:
  Loop(layers::Trainer& trainer, Data& data, const layers::Schedule& schedule, double weight_decay);

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
  /// Over the first `batches` global batches of held-out data (0: all whole batches). No step may
  /// be under way.
  Evaluation evaluate(std::int64_t batches);
  /// The next step is timed from now on: something else took the time before.
  void restart_clock();

 private:
  struct Pending {
    execution::Executor* executor;
    const layers::TrainingProgram* recorded;
    std::int64_t step;
    Then then;
    int expert_class;
    inputs::LoaderPosition position;  ///< of its data
    double lr;
    double pairs = 0;
    ExpertReport experts = {};
  };
  Pending launch(std::int64_t step, Then then);
  /// Chooses the class of the next step. @return whether this one had room
  bool judge(Pending& pending, int ago);
  bool has_room_for_all(const Pending& pending) const;
  StepReport read(Pending& pending, int ago);

  layers::Trainer& trainer_;
  Data& data_;
  layers::Schedule schedule_;
  double weight_decay_;
  int expert_class_ = 0;  ///< of the next step
  std::optional<Pending> pending_;
  double last_end_s_;
};

}  // namespace stowage::drivers
