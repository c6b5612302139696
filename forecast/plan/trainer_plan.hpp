#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "execution/executor.hpp"
#include "forecast/pipeline/choose_exchange.hpp"
#include "forecast/pipeline/pipeline_plan.hpp"
#include "layers/state/state.hpp"
#include "layers/step/between_steps.hpp"
#include "layers/step/decode.hpp"
#include "layers/step/step.hpp"
#include "offload/planner.hpp"
#include "offload/prediction.hpp"

namespace stowage::forecast {

/// Everything that decides a run on one rank, as plain numbers.
struct TrainerOptions {
  layers::ModelConfig model;
  layers::Precision precision;
  layers::StepShape step;                   ///< without capacity
  int evaluation_microbatches = 1;          ///< of the evaluation program; 0: none is made
  layers::Logits logits{};                  ///< that evaluations leave behind
  bool evaluates_ema = false;               ///< averages of weights are put in their place for them
  bool weight_norms = false;                ///< a program for norms of weights is made
  layers::DecodeShape decode;               ///< of a program for one more token; 0: none is made
  std::vector<std::int64_t> capacities{1};  ///< documents of a microbatch, ascending
  /// Classes of room for rows of experts that ranks share: so many times those of balanced ranks,
  /// ascending. Behind them is one with room for all.
  std::vector<double> capacity_factors;
  bool larger_classes = true;  ///< false: of these the first alone is planned, for a prediction
  layers::OptimizerConfig optimizer;
  layers::StateOptions state;  ///< with weights_only no training programs are made
  std::uint64_t seed = 1;
  layers::Sharing sharing;
  execution::ExecutorOptions executor;
  offload::PlannerOptions planner;
  std::int64_t largest_graphed = 0;  ///< programs of larger capacities have no graphs; 0: all have
  std::size_t slack_bytes = 0;       ///< see execution::Device
  bool state_copy = false;           ///< a copy of the state lies in device memory too
};

/// What is expected of a run, and decided by that, before its programs are recorded.
struct Expected {
  /// Of the exchanges of attention; none if no ranks share sequences.
  std::optional<ExchangeForecast> exchange;
  /// Of those of experts, in the smallest class of room; none if none are shared.
  std::optional<ExpertForecast> expert_exchange;
  /// Of the pipeline: its cuts, schedule and predicted times; none if it has one stage.
  std::optional<PipelinePlan> pipeline;
};

/// @throws Error (exit 2) as the parts do
Expected decide_open_choices(const TrainerOptions& options);

/// The recorded, planned programs of a run: known without memory, so a dry run stops here.
class TrainerPlan {
 public:
  explicit TrainerPlan(const TrainerOptions& options);

  struct Training {
    layers::TrainingProgram recorded;
    offload::Choice choice;  ///< what the planner decided about each saved tensor, and why
    execution::Plan plan;
  };
  struct Evaluation {
    layers::EvaluationProgram recorded;
    execution::Plan plan;
  };
  struct Decode {
    layers::DecodeProgram recorded;
    execution::Plan plan;
  };
  struct Between {
    layers::BetweenSteps recorded;
    execution::Plan plan;
  };

  /// With what is decided by what is expected().
  const TrainerOptions& options() const { return options_; }
  const Expected& expected() const { return expected_; }
  const layers::Model& model() const { return model_; }
  const execution::PersistentLayout& layout() const { return layout_; }
  /// One for each capacity, ascending. Where ranks share experts they are those of a class of room
  /// for rows: class 0, the smallest, unless said otherwise.
  const std::vector<std::unique_ptr<Training>>& training(int capacity_class = 0) const {
    return training_[capacity_class];
  }
  int capacity_classes() const { return static_cast<int>(training_.size()); }
  /// The smallest class with room for so many rows of a rank's experts; the last has it for all.
  int capacity_class(const kernels::ExpertCapacity& demand) const;
  /// One for each capacity, or none.
  const std::vector<std::unique_ptr<Evaluation>>& evaluation() const { return evaluation_; }
  /// Null: none was asked for.
  const Decode* decode() const { return decode_.get(); }
  /// Likewise the programs between steps.
  const Between* ema_exchange() const { return ema_exchange_.get(); }
  const Between* weight_norms() const { return weight_norms_.get(); }
  /// The queues on which compute is issued and captured, each name once. Those that only launch
  /// graphs are not among them.
  std::vector<execution::QueueInfo> compute_queues() const;
  /// Bytes of a copy of what this rank speaks for of the state (state_copy.hpp), wherever it lies.
  std::size_t state_copy_bytes() const { return state_copy_bytes_; }
  /// Largest region of all programs: device memory that no tensor keeps for longer than a step, and
  /// pinned host memory.
  std::size_t transient_bytes() const { return bytes(execution::Region::transient); }
  std::size_t host_bytes() const { return bytes(execution::Region::host); }
  /// All of them with their plans, of all classes.
  std::vector<execution::PlannedProgram> programs() const;
  /// One of the plans without waits for messages of other stages.
  offload::Prediction predict_alone(const Training& training) const;
  /// Times of the passes of this rank's stages of a pipeline in that.
  std::vector<layers::PassTimes> pass_times(const Training& training,
                                            const offload::Prediction& alone) const;
  /// What the ranks of the pipeline are expected to do when, by this rank's plan, from which the
  /// others' are taken to differ as predicted.
  Timeline timeline(const Training& training, const offload::Prediction& alone) const;
  /// What a step by one of the plans is expected to take, with what this rank's stage of a pipeline
  /// waits for the others in that timeline.
  double step_s(const Training& training) const;
  /// Whether programs of a capacity are issued op by op, as it is above those that graphs are for.
  bool beyond_graphs(std::int64_t capacity) const;
  /// Proves all programs together. @throws Error
  void require_proven() const;

 private:
  execution::PersistentLayout lay_out() const;
  void plan_somehow(const std::vector<layers::StatesOnHost>& others);
  void plan();
  int pipeline_rank() const;
  std::size_t bytes(execution::Region region) const;
  std::unique_ptr<Training> record(std::int64_t capacity, double capacity_factor) const;
  offload::PlannerOptions planner(std::int64_t capacity) const;
  void plan_smallest();
  void plan_like(Training& training, const Training& larger) const;
  void plan_larger();
  void evaluate(std::int64_t capacity);
  void plan_decode();
  std::unique_ptr<Between> planned(layers::BetweenSteps recorded) const;
  /// Those between steps that there are.
  std::vector<const Between*> between() const;

  Expected expected_;
  TrainerOptions options_;
  layers::Model model_;
  execution::PersistentLayout layout_;
  std::size_t state_copy_bytes_;
  std::vector<double> capacity_factors_;                          ///< by class; 0: room for all
  std::vector<std::vector<std::unique_ptr<Training>>> training_;  ///< by class and capacity
  std::vector<std::unique_ptr<Evaluation>> evaluation_;
  std::unique_ptr<Decode> decode_;
  std::unique_ptr<Between> ema_exchange_, weight_norms_;
};

}  // namespace stowage::forecast
