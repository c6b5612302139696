#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layers/trainer.hpp"

namespace stowage::ctest {

/// A model of some layers that trains in milliseconds, with awkward sizes on purpose: 3 documents
/// whose borders are no multiple of a chunk, and a tail.
layers::TrainerOptions tiny_options(const std::string& pattern, execution::Dtype storage);

/// A trainer of tiny_options, by default on the host backend, with data of its own.
class TinyRun {
 public:
  explicit TinyRun(layers::TrainerOptions options, execution::HostOptions host = {});
  TinyRun(layers::TrainerOptions options, std::unique_ptr<execution::Backend> backend);

  /// A step's microbatches that are this rank's: part `index` of `parts`.
  struct Part {
    int index = 0;
    int parts = 1;
  };
  /// Stages batch `index`, or a part of it, and issues a training step.
  /// @param expert_class with how much room for rows of experts that ranks share
  void train(int index, double lr, Part part = {0, 1}, int expert_class = 0);
  /// The same in the smallest class that has room for all rows. @return how many had too little
  int train_with_room(int index, double lr, Part part = {0, 1});
  /// Where the documents of every microbatch start and end from the next step on, up to the tail:
  /// the last two tokens. The program of the smallest capacity that holds them is used.
  void set_documents(std::vector<std::int32_t> starts) { documents_ = std::move(starts); }
  /// Loss of batch `index`: the sum over counted targets.
  double evaluate(int index, Part part = {0, 1});
  /// Sum of losses and number of counted targets of the last training step.
  std::vector<double> loss();
  bool step_ok();
  /// Of the last training step; see TrainingProgram.
  std::vector<std::int32_t> expert_rows();
  double grad_norm();

  layers::Trainer& trainer() { return *trainer_; }
  execution::Backend& backend() { return *backend_; }
  /// Content of a persistent tensor as doubles (fp64, fp32, bf16).
  std::vector<double> read(const std::string& tensor);
  void write(const std::string& tensor, const std::vector<double>& values);
  /// All bytes of what outlives a step: parameters, gradients, masters, moments, states, counts.
  std::vector<std::byte> state();
  /// The same as a digest, made where it lies: for models whose bytes take long to read.
  std::vector<std::byte> digest();
  /// Gives every token of a frozen router its experts, one of which gets none.
  void freeze_routing();
  /// The same by a choice r of token t; those of the tail have none.
  using Routing = std::function<std::int32_t(std::int32_t t, std::int32_t r)>;
  void freeze_routing(const Routing& expert);

 private:
  struct Batch {
    std::vector<std::int32_t> tokens, targets, cu_seqlens;
    int counted = 0;
  };
  Batch make_batch(int index, const layers::StepShape& shape, int first_microbatch = 0) const;
  /// Stages those inputs of a program that its stage of the model reads.
  void stage_inputs(execution::Executor& executor, const layers::StackedInputs& inputs,
                    const Batch& batch);
  std::int64_t documents() const { return static_cast<std::int64_t>(documents_.size()) - 1; }

  std::unique_ptr<execution::Backend> backend_;
  std::unique_ptr<layers::Trainer> trainer_;
  std::unique_ptr<execution::Arena> sums_;  ///< of digests
  std::unique_ptr<execution::Arena> sums_on_host_;
  execution::Executor* executor_ = nullptr;
  const layers::TrainingProgram* recorded_ = nullptr;
  std::vector<std::int32_t> documents_{0, 6, 7, 21, 21, 21};
};

}  // namespace stowage::ctest
