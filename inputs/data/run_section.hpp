#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "execution/dtype.hpp"
#include "inputs/deck/section.hpp"

namespace stowage::inputs {

/// [run]
struct RunConfig {
  std::string name = "run";
  std::int64_t seed = 1234;
  std::int64_t steps = 100;
  /// The bits of a run are those of a layout, or the same on any number of data and pipeline ranks.
  bool same_on_ranks = false;
  std::int64_t same_bits_leaves = 0;  ///< of the tree of gradients; 0: each microbatch is one
  std::string output, mllog;
  std::int64_t log_interval = 10;
  bool router_load = false;       ///< tokens of each expert are told to the host in every step
  bool gradient_norms = false;    ///< likewise the norm of each layer's gradients
  bool activation_norms = false;  ///< likewise the RMS of the residual stream before each layer
  std::int64_t weight_norms = 0;  ///< steps from one norm of each layer's weights to the next
  std::int64_t update_norms = 0;  ///< likewise of what a step changes them by
  bool source_losses = false;     ///< likewise the losses of each file of data.mix
};

/// [train]: the element type, and the sequences of a step.
struct TrainConfig {
  execution::Dtype dtype = execution::Dtype::bf16;
  std::int64_t micro_batch_size = 1;   ///< sequences of a microbatch on one rank
  std::int64_t global_batch_size = 1;  ///< sequences of a step over all ranks
  std::int64_t seq_length = 256;       ///< T

  std::int64_t microbatch_tokens() const { return micro_batch_size * seq_length; }
  std::int64_t step_tokens() const { return global_batch_size * seq_length; }
};

/// [eval]
struct EvalConfig {
  std::int64_t interval = 0;
  std::int64_t steps = 0;  ///< batches; 0: all that is held out
  bool ema = false;        ///< by averages of the weights in their place
};

template <>
std::vector<Row<RunConfig>> rows<RunConfig>();
template <>
std::vector<Row<TrainConfig>> rows<TrainConfig>();
template <>
std::vector<Row<EvalConfig>> rows<EvalConfig>();

void check(const TrainConfig& train, const Deck& deck);

}  // namespace stowage::inputs
