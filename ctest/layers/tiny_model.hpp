#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "run/step/trainer.hpp"

namespace stowage::ctest {

/// Where the documents of a microbatch start and end, from 0 on, up to the tail.
using Documents = std::vector<std::int32_t>;

/// Up to `most` documents, at least one, of random lengths, some of which are none. They end
/// somewhere in the last tenth of the tokens.
Documents draw_documents(std::mt19937_64& random, std::int64_t tokens, int most);

/// A pattern with a layer of each kind that the program has: "M*-EG", and kinds of its own.
std::string every_kind();
/// Each of them alone, then the pattern of all.
std::vector<std::string> kind_patterns();
/// The pattern without its gated DeltaNet layers; see condition_norms.
std::string without_gated_delta(std::string pattern);
/// What offload.modules can name, but for names that stand for several.
std::vector<std::string> module_names();

/// A model of some layers that trains in milliseconds, with awkward sizes on purpose: 3 documents
/// whose borders are no multiple of a chunk, and a tail.
forecast::TrainerOptions tiny_options(const std::string& pattern, execution::Dtype storage);

/// The forms of Qwen3-Next and Qwen3.5: an output gate, norms of heads and positions of a part of
/// them, norms about 0, SwiGLU, a softmax router and a gated shared expert; and Kimi delta
/// attention's decays of channels.
void use_gates(forecast::TrainerOptions& options);

/// Experts in a latent width with a norm of their sum, and two heads of further tokens. Their
/// blocks are attention and experts, or what else is asked for.
void predict_further(forecast::TrainerOptions& options, bool shared_block,
                     const std::string& pattern = "*E");

/// Products of 8 bits in all layers, whose sizes are multiples of 16.
void quantise(forecast::TrainerOptions& options);

/// A norm's epsilon of 0.1 if the pattern has a gated DeltaNet layer, for comparisons of gradients
/// that were rounded differently. The layer norms what a document's first token reads, (k q) v.
/// With a small epsilon the rounding of a k q near 0 turns the sign of the whole row.
void condition_norms(forecast::TrainerOptions& options);

/// Layers of the standard decks, narrower, with as many heads and experts as show every path of the
/// tensor-core kernels; 1024 tokens in several chunks and tiles.
void enlarge(forecast::TrainerOptions& options, int head_dim);

/// A trainer of tiny_options, by default on the host backend, with data of its own.
class TinyRun {
 public:
  explicit TinyRun(forecast::TrainerOptions options, execution::HostOptions host = {});
  TinyRun(forecast::TrainerOptions options, std::unique_ptr<execution::Backend> backend);

  /// A step's microbatches that are this rank's: part `index` of `parts`.
  struct Part {
    int index = 0;
    int parts = 1;
  };
  /// Inputs of a step, microbatch by microbatch.
  struct Batch {
    std::vector<std::int32_t> tokens, targets;
    std::vector<Documents> documents;
    int counted = 0;       ///< targets
    int step_counted = 0;  ///< those of all parts of the step; 0: this part's times the parts

    /// The most of a microbatch.
    std::int64_t most_documents() const;
  };
  /// @param first_microbatch of this rank's, in the step
  Batch make_batch(int index, int microbatches, int first_microbatch = 0) const;

  /// Stages batch `index`, or a part of it, and issues a training step.
  /// @param capacity_class with how much room for rows of experts that ranks share
  void train(int index, double lr, Part part = {0, 1}, int capacity_class = 0);
  /// The same with a batch of the caller's, which is one of `parts`.
  void train(const Batch& batch, double lr, int parts = 1, int capacity_class = 0);
  /// The same in the smallest class that has room for all rows. @return how many had too little
  int train_with_capacity(int index, double lr, Part part = {0, 1});
  /// The documents of the microbatches from the next step on, in turn. The program of the smallest
  /// capacity that holds them is used.
  void set_packing(std::vector<Documents> packing) { documents_ = std::move(packing); }
  /// The same documents in every microbatch.
  void set_documents(Documents documents) { documents_ = {std::move(documents)}; }
  /// Loss of batch `index`: the sum over counted targets, of z-losses too if the model has them.
  double evaluate(int index, Part part = {0, 1});
  /// Sum of losses and number of counted targets of the last training step.
  std::vector<double> loss();
  /// Behind them z-losses and the losses of each source, likewise, and the squares of the residual
  /// stream, if the step tells them.
  std::vector<double> told();
  /// Of what the last training step changed, by part; it is always asked for.
  std::vector<double> update_squares();
  /// Load-balancing and z loss of the last training step.
  std::vector<double> router_losses();
  bool step_ok();
  /// Of the last training step; see TrainingProgram.
  std::vector<std::int32_t> expert_rows();
  double grad_norm();

  /// How often the host has waited for the backend while it issued training steps.
  std::uint64_t waits_in_steps() const { return waits_in_steps_; }

  run::Trainer& trainer() { return *trainer_; }
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
  /// Stages those inputs of a program that its stage of the model reads.
  void stage_inputs(execution::Executor& executor, const layers::StackedInputs& inputs,
                    const layers::StepShape& shape, const Batch& batch);
  /// An output of the last training step.
  std::vector<double> result(execution::Tensor output);

  std::unique_ptr<execution::Backend> backend_;
  std::unique_ptr<run::Trainer> trainer_;
  std::unique_ptr<execution::Arena> sums_;  ///< of digests
  std::unique_ptr<execution::Arena> sums_on_host_;
  execution::Executor* executor_ = nullptr;
  const layers::TrainingProgram* recorded_ = nullptr;
  std::vector<Documents> documents_{{0, 6, 7, 21, 21, 21}};
  std::uint64_t waits_in_steps_ = 0;
};

}  // namespace stowage::ctest
