// Rows of [run], [train] and [eval].
#include "inputs/data/run_section.hpp"

#include <cmath>
#include <limits>

#include "inputs/deck/check.hpp"

namespace stowage::inputs {

using execution::Dtype;
using execution::throw_usage;

template <>
std::vector<Row<RunConfig>> rows<RunConfig>() {
  return {
      row(&RunConfig::name, {.key = "run.name", .help = "Name of the run in its results."}),
      row(&RunConfig::seed,
          {.key = "run.seed",
           .range = at_least(0),
           .numerics = true,
           .help = "Seed of initial weights, sample order and synthetic tokens."}),
      row(&RunConfig::steps, {.key = "run.steps",
                              .unit = "steps",
                              .range = between(0, kMostSteps),
                              .help = "Optimizer steps. The learning-rate schedule ends here "
                                      "unless optim.decay_steps says "
                                      "otherwise."}),
      row(&RunConfig::same_on_ranks,
          {.key = "run.same_bits",
           .numerics = true,
           .help =
               "What gives the same bits. layout: the same layout of ranks. ranks: any number of "
               "data and pipeline ranks, with zero or without, and any number of microbatches "
               "of a rank; sums over train.global_batch_size / train.micro_batch_size "
               "microbatches go by one tree, which takes memory for partial gradients."},
          {{"layout", false}, {"ranks", true}}),
      row(&RunConfig::same_bits_leaves,
          {.key = "run.same_bits_leaves",
           .range = between(0, 1048576),
           .numerics = true,
           .help = "Leaves of the tree of run.same_bits = \"ranks\": as many microbatches follow "
                   "one another in each and add up their gradients in place. Ranks with other "
                   "sequences have as many leaves each, so these bound how many there can be; "
                   "fewer take less memory and time. 0: each microbatch is a leaf."}),
      row(&RunConfig::output,
          {.key = "run.output",
           .help =
               "Path of the result set (HDF5). Empty: <run.name>.h5 in the working directory."}),
      row(&RunConfig::mllog,
          {.key = "run.mllog",
           .help = "Where the lines of MLPerf Training's log (:::MLLOG) are written: an older log "
                   "is kept "
                   "beside it, a run that goes on adds to its own. Empty: nowhere."}),
      row(&RunConfig::log_interval, {.key = "run.log_interval",
                                     .unit = "steps",
                                     .range = between(1, kMostSteps),
                                     .help = "A progress line every so many steps; in a file, at "
                                             "most one in two seconds."}),
      row(&RunConfig::router_load,
          {.key = "run.router_load",
           .help =
               "Keep the load of experts by layer and step. Its series is router_load in the "
               "result set; JSON lines have the worst layer. Changes no bit of what is trained, "
               "and costs nothing if it is false."}),
      row(&RunConfig::gradient_norms,
          {.key = "run.gradient_norms",
           .help = "Keep the norm of the gradients of each layer, of the embedding and of the head "
                   "by step, before clipping. Their series are gradient_norms in the result set. "
                   "Changes no bit of what is trained, and costs nothing if it is false."}),
      row(&RunConfig::activation_norms,
          {.key = "run.activation_norms",
           .help = "Keep the root mean square of the residual stream that each layer and the head "
                   "read, over all positions of a step. Their series are activation_norms in the "
                   "result set. Changes no bit of what is trained, and costs nothing if it is "
                   "false."}),
      row(&RunConfig::weight_norms,
          {.key = "run.weight_norms",
           .unit = "steps",
           .range = between(0, kMostSteps),
           .help = "Keep the norm of the weights of each layer, of the embedding and of the head "
                   "after every so many steps. Their series are weight_norms in the result set. "
                   "Changes no bit of what is trained. Such a step is waited for, and all weights "
                   "are read once. 0: never, which costs nothing."}),
      row(&RunConfig::update_norms,
          {.key = "run.update_norms",
           .unit = "steps",
           .range = between(0, kMostSteps),
           .help = "Keep the norm of what a step changes the weights of each layer, of the "
                   "embedding and of the head by, in every so many steps: that of masters, where "
                   "there are any. Their series are update_norms in the result set. Changes no bit "
                   "of what is trained. Such a step reads and writes all weights once more, window "
                   "by window. 0: never, which costs nothing."}),
      row(&RunConfig::source_losses,
          {.key = "run.source_losses",
           .help = "Keep the training loss of each file of data.mix: its mean over the counted "
                   "targets of run.log_interval steps. Their series are source_loss in the result "
                   "set. Changes no bit of what is trained, and costs nothing if it is false."}),
  };
}

template <>
std::vector<Row<TrainConfig>> rows<TrainConfig>() {
  return {
      row(&TrainConfig::dtype,
          {.key = "train.dtype",
           .numerics = true,
           .help =
               "Element type of weights and activations. bf16 has fp32 master weights; fp64 is for "
               "checks on the host."},
          {{"fp32", Dtype::fp32}, {"bf16", Dtype::bf16}, {"fp64", Dtype::fp64}}),
      row(&TrainConfig::micro_batch_size, {.key = "train.micro_batch_size",
                                           .unit = "sequences",
                                           .range = between(1, kMostInt),
                                           .numerics = true,
                                           .help = "Sequences of one microbatch on one rank."}),
      row(&TrainConfig::global_batch_size,
          {.key = "train.global_batch_size",
           .unit = "sequences",
           .range = between(1, kMostInt),
           .numerics = true,
           .help = "Sequences of one optimizer step over all ranks: a multiple of "
                   "micro_batch_size * the ranks with other sequences (all of them / "
                   "(tensor * context * pipeline))."}),
      row(&TrainConfig::seq_length, {.key = "train.seq_length",
                                     .unit = "tokens",
                                     .range = between(1, 1 << 24),
                                     .numerics = true,
                                     .help = "Tokens T of a sequence."}),
  };
}

template <>
std::vector<Row<EvalConfig>> rows<EvalConfig>() {
  return {
      row(&EvalConfig::interval,
          {.key = "eval.interval",
           .unit = "steps",
           .range = between(0, kMostSteps),
           .help = "Evaluate every so many steps, and at the end. 0: at the end only."}),
      row(&EvalConfig::steps,
          {.key = "eval.steps",
           .unit = "batches",
           .range = between(0, kMostSteps),
           .help = "Global batches of one evaluation: the first of a fixed random order of the "
                   "held-out "
                   "sequences, which neither run.seed nor the number of ranks changes. 0: every "
                   "held-out "
                   "token once, whatever the batch, but for documents that long_documents drops. "
                   "Sequences that count nothing fill up the last batch."}),
      row(&EvalConfig::ema,
          {.key = "eval.ema",
           .help = "Evaluate the averages of optim.ema_decay in place of the weights, rounded to "
                   "train.dtype. They change places before an evaluation and behind it, which "
                   "changes no bit of what is trained."}),
  };
}

namespace {

/// Numbers that a step of fp32 or bf16 would take for 0.
void check_small_numbers(const Deck& deck) {
  for (const Deck::Row& row : deck.rows()) {
    const auto* number = std::get_if<double>(&row.value);
    if (number == nullptr || !row.parameter.numerics || *number == 0) continue;
    if (std::abs(*number) < std::numeric_limits<float>::min())
      throw_usage("{} is 0 in fp32: must be at least {}", deck.cite(row.key),
                  std::numeric_limits<float>::min());
  }
}

}  // namespace

void check(const TrainConfig& train, const Deck& deck) {
  check_divides(deck, key(&TrainConfig::micro_batch_size), key(&TrainConfig::global_batch_size));
  if (train.micro_batch_size > 2147483647 / train.seq_length)
    throw_usage("{} times {}: a microbatch has at most 2^31 - 1 tokens",
                cite(deck, &TrainConfig::micro_batch_size), cite(deck, &TrainConfig::seq_length));
  check_product(deck, "tokens of a step",
                {key(&TrainConfig::global_batch_size), key(&TrainConfig::seq_length)}, 0x1p36);
  if (train.dtype != Dtype::fp64) check_small_numbers(deck);
}

}  // namespace stowage::inputs
