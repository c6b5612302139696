// Rows of [train], [data], [optim], [eval] and [checkpoint].
#include "inputs/deck/registry.hpp"

namespace stowage::inputs::detail {

using std::string;

namespace {

std::vector<Parameter> train_rows() {
  return {
      {.key = "train.dtype",
       .fallback = string("bf16"),
       .allowed = {"fp32", "bf16", "fp64"},
       .numerics = true,
       .help = "Element type of weights and activations. bf16 has fp32 master weights; fp64 is for "
               "checks on the host."},
      {.key = "train.micro_batch_size",
       .fallback = 1,
       .unit = "sequences",
       .range = between(1, kMostInt),
       .numerics = true,
       .help = "Sequences of one microbatch on one rank."},
      {.key = "train.global_batch_size",
       .fallback = 1,
       .unit = "sequences",
       .range = between(1, kMostInt),
       .numerics = true,
       .help = "Sequences of one optimizer step over all ranks: a multiple of ranks * "
               "micro_batch_size."},
      {.key = "train.seq_length",
       .fallback = 256,
       .unit = "tokens",
       .range = between(1, 1 << 24),
       .numerics = true,
       .help = "Tokens T of a sequence."},
  };
}

std::vector<Parameter> data_rows() {
  return {
      {.key = "data.source",
       .fallback = string("auto"),
       .allowed = {"auto", "text", "megatron", "llmc", "synthetic"},
       .numerics = true,
       .help = "Format of the tokens. auto: a Megatron .bin/.idx pair or an llm.c shard by its "
               "magic, any other file as text, one token a byte."},
      {.key = "data.path",
       .fallback = string(),
       .help = "The data file, relative to the working directory; for Megatron data the .idx, the "
               ".bin or both without suffix."},
      {.key = "data.validation_path",
       .fallback = string(),
       .help = "Held-out data in a file of its own. Empty: held_out_fraction of data.path."},
      {.key = "data.mask",
       .fallback = string("auto"),
       .allowed = {"auto", "required", "none"},
       .numerics = true,
       .help = "Loss mask beside each data file (.mask for .bin or .idx, appended to other names): "
               "a byte a token, 0 where it is not predicted. auto: used if it is there."},
      {.key = "data.packing",
       .fallback = string("documents"),
       .allowed = {"documents", "first_fit", "best_fit", "none"},
       .numerics = true,
       .help = "documents: the stream is cut every seq_length tokens; attention, convolution and "
               "scan end where a document ends, and nothing is predicted across. first_fit, "
               "best_fit: the same with whole documents, the rest of a sequence is padding. none: "
               "boundaries are ignored."},
      {.key = "data.packing_window",
       .fallback = 1 << 14,
       .unit = "documents",
       .range = between(0, kMostInt),
       .numerics = true,
       .help = "Documents that first_fit and best_fit pack together, in the order of the data. 0: "
               "all."},
      {.key = "data.long_documents",
       .fallback = string("split"),
       .allowed = {"split", "drop"},
       .numerics = true,
       .help = "What first_fit and best_fit do with documents above seq_length tokens. The header "
               "says how many there are."},
      {.key = "data.document_multiple",
       .fallback = 1,
       .unit = "tokens",
       .range = between(1, kMostInt),
       .numerics = true,
       .help = "first_fit and best_fit pad each document to a multiple of this; it divides "
               "seq_length."},
      {.key = "data.held_out_fraction",
       .fallback = 0.05,
       .range = from_to_below(0, 1),
       .numerics = true,
       .help = "The last part of the documents, kept for evaluation."},
      {.key = "data.max_documents",
       .fallback = 0,
       .range = between(0, kMostInt),
       .numerics = true,
       .help = "Documents that a microbatch may hold: the capacity of cu_seqlens. first_fit and "
               "best_fit never pack more; with other packings, steps that have more run a larger "
               "program. 0: what the data can need at most."},
      {.key = "data.document_token",
       .fallback = -1,
       .range = between(-1, kMostInt),
       .numerics = true,
       .help = "Token that starts a document in files without stored boundaries (llm.c's GPT-2 "
               "shards: 50256). -1: none."},
      {.key = "data.synthetic_tokens",
       .fallback = 1 << 24,
       .unit = "tokens",
       .range = between(2, kMostTokens),
       .numerics = true,
       .help = "Length of the synthetic stream: uniform random tokens by position."},
      {.key = "data.synthetic_document_length",
       .fallback = 0,
       .unit = "tokens",
       .range = between(0, 1 << 30),
       .numerics = true,
       .help = "Mean length of synthetic documents, which are uniform in [1, 2 * mean). 0: the "
               "stream is one document."},
      {.key = "data.synthetic_lengths",
       .fallback = std::vector<std::int64_t>{},
       .unit = "tokens",
       .range = between(1, 1 << 30),
       .numerics = true,
       .help = "Lengths of synthetic documents, of which each has one, drawn at random, instead of "
               "synthetic_document_length."},
  };
}

std::vector<Parameter> optimizer_rows() {
  return {
      {.key = "optim.lr",
       .fallback = 3e-4,
       .range = at_least(0),
       .numerics = true,
       .help = "Largest learning rate."},
      {.key = "optim.min_lr",
       .fallback = 3e-5,
       .range = at_least(0),
       .numerics = true,
       .help = "Learning rate at and after the end of the decay."},
      {.key = "optim.warmup_steps",
       .fallback = 0,
       .unit = "steps",
       .range = between(0, kMostSteps),
       .numerics = true,
       .help = "Steps of linear warm-up."},
      {.key = "optim.schedule",
       .fallback = string("cosine"),
       .allowed = {"cosine", "wsd", "constant"},
       .numerics = true,
       .help = "After warm-up: half a cosine to min_lr, warm-up-stable-decay, or constant lr."},
      {.key = "optim.decay_steps",
       .fallback = 0,
       .unit = "steps",
       .range = between(0, kMostSteps),
       .numerics = true,
       .help = "Step at which min_lr is reached. 0: run.steps."},
      {.key = "optim.wsd_decay_steps",
       .fallback = 0,
       .unit = "steps",
       .range = between(0, kMostSteps),
       .numerics = true,
       .help = "Length of the linear decay that ends schedule wsd. 0: a tenth of decay_steps, "
               "rounded up."},
      {.key = "optim.adam_beta1",
       .fallback = 0.9,
       .range = from_to_below(0, 1),
       .numerics = true,
       .help = "Decay of the first moment."},
      {.key = "optim.adam_beta2",
       .fallback = 0.95,
       .range = from_to_below(0, 1),
       .numerics = true,
       .help = "Decay of the second moment."},
      {.key = "optim.adam_eps",
       .fallback = 1e-8,
       .range = above(0),
       .numerics = true,
       .help = "Added to the root of the second moment."},
      {.key = "optim.weight_decay",
       .fallback = 0.1,
       .range = at_least(0),
       .numerics = true,
       .help = "Decoupled decay of matrices; vectors and the weights of Mamba layers' convolutions "
               "are never decayed."},
      {.key = "optim.clip_grad",
       .fallback = 1.0,
       .range = at_least(0),
       .numerics = true,
       .help = "Largest global gradient norm. 0: no clipping."},
      {.key = "optim.spike_factor",
       .fallback = 0.0,
       .range = zero_or_at_least(1),
       .numerics = true,
       .help = "Skip a step whose gradient norm, before clipping, is above so many times the mean "
               "norm of the steps before. 0: steps are skipped only if the norm is not finite."},
      {.key = "optim.spike_window",
       .fallback = 100,
       .unit = "steps",
       .range = between(1, kMostInt),
       .numerics = true,
       .help = "Steps of the mean that spike_factor goes by: of all good steps while there are "
               "fewer, then each new one has a weight of 1/spike_window."},
      {.key = "optim.spikes_in_a_row",
       .fallback = 3,
       .unit = "steps",
       .range = between(1, kMostInt),
       .numerics = true,
       .help =
           "Most steps that spike_factor skips one behind the other: the next one is taken, and "
           "the mean begins anew with its norm."},
  };
}

std::vector<Parameter> saving_rows() {
  return {
      {.key = "eval.interval",
       .fallback = 0,
       .unit = "steps",
       .range = between(0, kMostSteps),
       .help = "Evaluate every so many steps, and at the end. 0: at the end only."},
      {.key = "eval.steps",
       .fallback = 0,
       .unit = "batches",
       .range = between(0, kMostSteps),
       .help = "Global batches of one evaluation. 0: all held-out data."},
      {.key = "checkpoint.directory",
       .fallback = string(),
       .help = "Where checkpoints are written. Empty: no checkpoints."},
      {.key = "checkpoint.interval",
       .fallback = 0,
       .unit = "steps",
       .range = between(0, kMostSteps),
       .help = "Save every so many steps, and at the end. 0: at the end only."},
      {.key = "checkpoint.interval_minutes",
       .fallback = 0.0,
       .unit = "min",
       .range = at_least(0),
       .help =
           "Save when so much time has passed since the last time, besides checkpoint.interval. "
           "0: by steps only."},
      {.key = "checkpoint.copy",
       .fallback = string("auto"),
       .allowed = {"auto", "device", "host", "none"},
       .help =
           "Where the state is copied to between two steps, so that it is written while "
           "training goes on: within device memory; to pinned host memory; none: training waits "
           "for the file. auto: device if the plan leaves room for the copy and 2 GiB more on all "
           "ranks, else host within checkpoint.host_budget_bytes, else none."},
      {.key = "checkpoint.host_budget_bytes",
       .fallback = 0,
       .unit = "B",
       .range = between(0, kMostBytes),
       .help = "Pinned host memory per rank that checkpoint.copy = \"auto\" may take."},
      {.key = "checkpoint.busy",
       .fallback = string("wait"),
       .allowed = {"wait", "put_off"},
       .help = "What a checkpoint that is due does while the one before is still being written: "
               "wait for it, or be put off until it is whole."},
      {.key = "checkpoint.resume",
       .fallback = string("auto"),
       .help = "auto: from the latest checkpoint of the directory, if any; never; or the path of a "
               "checkpoint; or hf: and a Hugging Face folder, whose weights the run starts from."},
      {.key = "checkpoint.allow_changes",
       .fallback = false,
       .help =
           "Resume although keys that change the numbers, or the data, differ from the "
           "checkpoint's. Of data above 16 Mi tokens, 256 blocks of 64 Ki tokens are compared."},
      {.key = "checkpoint.keep_last",
       .fallback = 2,
       .range = between(1, kMostInt),
       .help = "Checkpoints kept; older ones are deleted."},
      {.key = "checkpoint.keep_every",
       .fallback = 0,
       .unit = "steps",
       .range = between(0, kMostSteps),
       .help = "Checkpoints of steps that are multiples of this are kept as well. 0: none."},
  };
}

}  // namespace

std::vector<Parameter> training_parameters() {
  std::vector<Parameter> rows = train_rows();
  for (const auto& part : {data_rows(), optimizer_rows(), saving_rows()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace stowage::inputs::detail
