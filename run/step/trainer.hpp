#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "execution/device.hpp"
#include "execution/executor.hpp"
#include "forecast/plan/trainer_plan.hpp"

namespace stowage::run {

/// The programs of a run on a device, ready to step.
class Trainer {
 public:
  /// What libraries need for a compute queue, set up before graphs are captured on it.
  using QueueSetup = std::function<void(execution::Queue&)>;

  /// Allocates everything and sets the initial state.
  /// @throws Error (exit 3) if the memory is not there
  Trainer(std::unique_ptr<forecast::TrainerPlan> plan, execution::Backend& backend,
          const QueueSetup& set_up = {});

  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer();

  forecast::TrainerPlan& plan() { return *plan_; }
  execution::Device& device() { return device_; }
  /// Goes back to what a run starts from; no step may be under way.
  void set_initial_state();

  /// A program with its executor.
  struct Training {
    const layers::TrainingProgram& recorded;
    execution::Executor& executor;
  };
  struct Evaluation {
    const layers::EvaluationProgram& recorded;
    execution::Executor& executor;
  };
  struct Decode {
    const layers::DecodeProgram& recorded;
    execution::Executor& executor;
  };
  /// The smallest capacity that holds `documents` in every microbatch, of a class of room for rows
  /// of experts.
  /// @throws Error if none does
  Training training(std::int64_t documents, int capacity_class = 0);
  /// Of all programs.
  std::vector<execution::Executor*> executors();
  Evaluation evaluation(std::int64_t documents);
  Decode decode();
  /// Averages take the place of weights, or weights theirs again; no step may be under way.
  void exchange_ema();
  /// Norms of the weights of embedding, layers and head; no step may be under way.
  std::vector<double> weight_norms();

 private:
  std::size_t pick(std::int64_t documents) const;

  std::unique_ptr<forecast::TrainerPlan> plan_;
  execution::Device device_;
  std::vector<std::vector<std::unique_ptr<execution::Executor>>> training_;
  std::vector<std::unique_ptr<execution::Executor>> evaluation_;
  std::unique_ptr<execution::Executor> decode_, ema_exchange_, weight_norms_;
};

}  // namespace stowage::run
