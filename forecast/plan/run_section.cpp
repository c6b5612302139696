// Rows of [checkpoint], [execution] and [validate].
#include "forecast/plan/run_section.hpp"

#include "inputs/data/run_section.hpp"

namespace stowage::inputs {

using forecast::CheckpointConfig;
using forecast::ExecutionConfig;
using forecast::ValidateConfig;

template <>
std::vector<Row<CheckpointConfig>> rows<CheckpointConfig>() {
  return {
      row(&CheckpointConfig::directory,
          {.key = "checkpoint.directory",
           .help = "Where checkpoints are written. Empty: no checkpoints."}),
      row(&CheckpointConfig::interval,
          {.key = "checkpoint.interval",
           .unit = "steps",
           .range = between(0, kMostSteps),
           .help = "Save every so many steps, and at the end. 0: at the end only."}),
      row(&CheckpointConfig::interval_minutes,
          {.key = "checkpoint.interval_minutes",
           .unit = "min",
           .range = at_least(0),
           .help = "Save when so much time has passed since the last time, besides "
                   "checkpoint.interval. "
                   "0: by steps only."}),
      row(&CheckpointConfig::copy,
          {.key = "checkpoint.copy",
           .help = "Where the state is copied to between two steps, so that it is written while "
                   "training goes on: within device memory; to pinned host memory; none: training "
                   "waits "
                   "for the file. auto: device if the plan leaves room for the copy and 2 GiB more "
                   "on all "
                   "ranks, else host within checkpoint.host_budget_bytes, else none."},
          {{"auto", CheckpointConfig::Copy::automatic},
           {"device", CheckpointConfig::Copy::device},
           {"host", CheckpointConfig::Copy::host},
           {"none", CheckpointConfig::Copy::none}}),
      row(&CheckpointConfig::host_budget_bytes,
          {.key = "checkpoint.host_budget_bytes",
           .unit = "B",
           .range = between(0, kMostBytes),
           .help = "Pinned host memory per rank that checkpoint.copy = \"auto\" may take."}),
      row(&CheckpointConfig::may_put_off,
          {.key = "checkpoint.busy",
           .help =
               "What a checkpoint that is due does while the one before is still being written: "
               "wait for it, or be put off until it is whole."},
          {{"wait", false}, {"put_off", true}}),
      row(&CheckpointConfig::resume,
          {.key = "checkpoint.resume",
           .help =
               "auto: from the latest checkpoint of the directory, if any; never; or the path of a "
               "checkpoint; or hf: and a Hugging Face folder, whose weights the run starts from."}),
      row(&CheckpointConfig::allow_changes,
          {.key = "checkpoint.allow_changes",
           .help = "Resume although keys that change the numbers, or the data, differ from the "
                   "checkpoint's; a line says each. Of data above 16 Mi tokens, 256 blocks of 64 "
                   "Ki tokens "
                   "are compared. --evaluate-only needs it for model keys and train.dtype alone."}),
      row(&CheckpointConfig::keep_last, {.key = "checkpoint.keep_last",
                                         .range = between(1, kMostInt),
                                         .help = "Checkpoints kept; older ones are deleted."}),
      row(&CheckpointConfig::keep_every,
          {.key = "checkpoint.keep_every",
           .unit = "steps",
           .range = between(0, kMostSteps),
           .help = "Checkpoints of steps that are multiples of this are kept as well. 0: none."}),
      row(&CheckpointConfig::export_interval,
          {.key = "checkpoint.export_interval",
           .unit = "steps",
           .range = between(0, kMostSteps),
           .help = "The first checkpoint of each so many steps also becomes a published folder "
                   "(Hugging Face), <checkpoint.directory>/published/step_N. 0: none."}),
  };
}

template <>
std::vector<Row<ExecutionConfig>> rows<ExecutionConfig>() {
  return {
      row(&ExecutionConfig::backend,
          {.key = "execution.backend",
           .help = "Where the program runs. auto: cuda if this build and machine have it."},
          {{"auto", ExecutionConfig::Backend::automatic},
           {"host", ExecutionConfig::Backend::host},
           {"cuda", ExecutionConfig::Backend::cuda}}),
      row(&ExecutionConfig::delay_seed,
          {.key = "execution.delay_seed",
           .range = at_least(0),
           .help =
               "Seed of random delays of ops on the host backend, to find ordering mistakes. 0: "
               "no delays."}),
      row(&ExecutionConfig::audit,
          {.key = "execution.audit",
           .help = "Check that each op touches only the buffers it declares. Slow."}),
      row(&ExecutionConfig::ring_slots,
          {.key = "execution.ring_slots",
           .range = between(2, 64),
           .help =
               "Pinned slots k of inputs and metrics: the host runs at most k - 1 steps ahead."}),
  };
}

template <>
std::vector<Row<ValidateConfig>> rows<ValidateConfig>() {
  return {
      row(&ValidateConfig::val_loss_below,
          {.key = "validate.val_loss_below",
           .unit = "nats/token",
           .help = "The last validation loss must be smaller. inf: not checked."}),
      row(&ValidateConfig::val_loss_falling,
          {.key = "validate.val_loss_falling",
           .help = "The last validation loss must be below the one before it."}),
      row(&ValidateConfig::loss_below,
          {.key = "validate.loss_below",
           .unit = "nats/token",
           .help = "The last training loss must be smaller. inf: not checked."}),
      row(&ValidateConfig::grad_norm_below,
          {.key = "validate.grad_norm_below",
           .help = "Every gradient norm after warm-up, before clipping, must be smaller. inf: not "
                   "checked."}),
      row(&ValidateConfig::most_skipped_steps,
          {.key = "validate.most_skipped_steps",
           .unit = "steps",
           .range = between(0, kMostSteps),
           .help =
               "Steps of a run that may be skipped, since their gradient is not finite or a spike "
               "(optim.spike_factor): more make it invalid."}),
      row(&ValidateConfig::bad_steps_again,
          {.key = "validate.bad_steps_again",
           .help =
               "Do a step that is to be skipped once more from the same state: other bits than the "
               "first time are an error of the machine, the same bits are in the state or the "
               "tokens. It is skipped if it is bad again."}),
      row(&ValidateConfig::own_norms,
          {.key = "validate.own_norms",
           .help =
               "Of a step that is done again, tell by each rank's own gradients, too, which rank "
               "an error of the machine was on; else by its loss alone. Every step reads the "
               "gradients once more."}),
      row(&ValidateConfig::finite_differences,
          {.key = "validate.finite_differences",
           .help =
               "Before the first step, compare the gradients of a slice of the model (one layer of "
               "each kind, few tokens, fp64 on the host, fp32 on a GPU) with finite differences of "
               "the loss. auto: if that takes a few seconds at most."},
          {{"auto", ValidateConfig::When::automatic},
           {"on", ValidateConfig::When::on},
           {"off", ValidateConfig::When::off}}),
      row(&ValidateConfig::replayed_step,
          {.key = "validate.replayed_step",
           .help =
               "Do the first step twice from the same start: all that it leaves must be the same "
               "to the bit. A run that goes on from a checkpoint has no first step."}),
      row(&ValidateConfig::state_digest_interval,
          {.key = "validate.state_digest_interval",
           .unit = "steps",
           .range = between(0, kMostSteps),
           .help =
               "Steps between digests of all that a run keeps from step to step, which the result "
               "set holds. 0: of the last step only."}),
  };
}

}  // namespace stowage::inputs

namespace stowage::forecast {

using execution::throw_usage;
using inputs::Deck;
using inputs::key;

void check(const CheckpointConfig& checkpoint, const Deck& deck) {
  if (!checkpoint.directory.empty()) return;
  const std::string_view directory = key(&CheckpointConfig::directory);
  if (checkpoint.interval > 0)
    throw_usage("{} needs a {}", cite(deck, &CheckpointConfig::interval), directory);
  if (checkpoint.export_interval > 0)
    throw_usage("{} needs a {}", cite(deck, &CheckpointConfig::export_interval), directory);
  if (checkpoint.interval_minutes > 0)
    throw_usage("{} needs a {}", cite(deck, &CheckpointConfig::interval_minutes), directory);
}

void check(const ExecutionConfig& config, const Deck& deck) {
  using inputs::TrainConfig;
  if (config.backend == ExecutionConfig::Backend::cuda &&
      read(deck, &TrainConfig::dtype) == execution::Dtype::fp64)
    throw_usage("{}: fp64 is for checks on the host, not for {}", cite(deck, &TrainConfig::dtype),
                cite(deck, &ExecutionConfig::backend));
}

}  // namespace stowage::forecast
