#include "results/metric.hpp"

#include <array>

#include "execution/error.hpp"

namespace stowage::results {
namespace {

constexpr auto kHigher = Better::higher;
constexpr auto kLower = Better::lower;
constexpr auto kNeither = Better::neither;

constexpr auto kRegistry = std::to_array<MetricInfo>({
    {"train/tokens_per_s", "1/s", kHigher, "tokens of a step / median step time"},
    {"train/step_time", "s", kLower, "median time of an optimizer step"},
    {"train/model_flops_per_s", "FLOP/s", kHigher,
     "analytic FLOP of the model, true lengths and causal halves, no recompute / step time"},
    {"train/model_flops_per_s_gpu", "FLOP/s", kHigher, "train/model_flops_per_s / GPUs"},
    {"train/hw_flops_per_s", "FLOP/s", kHigher, "FLOP executed, recompute included / step time"},
    {"train/megatron_compat_flops_per_s", "FLOP/s", kHigher,
     "FLOP by Megatron's formula / step time; for comparison with its logs only"},
    {"train/loss", "nat", kLower, "training loss, mean of the last 10 % of the steps"},
    {"train/val_loss", "nat", kLower, "last validation loss per token"},
    {"train/best_val_loss", "nat", kLower, "least validation loss per token"},
    {"train/val_perplexity", "1", kLower, "exp(train/val_loss)"},
    {"train/val_accuracy", "1", kHigher,
     "part of the last validation's counted tokens whose logit is the largest"},
    {"train/wall_time", "s", kLower, "start of the program to the end of the last step"},
    {"train/setup_time", "s", kLower, "start of the program to the first step"},
    {"train/skipped_steps", "1", kLower, "steps that changed nothing: overflow, NaN or spike"},
    {"experts/reruns", "1", kLower,
     "times that a step was done again since experts lacked room for their rows"},
    {"train/transient_errors", "1", kLower,
     "bad steps that had other bits when they were done again from the same state"},
    {"train/peak_device_bytes", "B", kLower, "highest device memory of a rank"},
    {"train/persistent_bytes", "B", kLower, "parameters, gradients, masters and states of a rank"},
    {"train/transient_bytes", "B", kLower, "shared transient region of a rank, as planned"},
    {"train/collectives_bytes", "B", kLower, "device memory that NCCL took on a rank"},
    {"train/driver_bytes", "B", kLower,
     "device memory of a rank beside ours and NCCL's: context, code, libraries"},
    {"train/pinned_bytes", "B", kLower, "highest pinned host memory of a rank"},
    {"train/parameters", "1", kNeither, "parameters of the model, all ranks"},
    {"data/packing_efficiency", "1", kHigher,
     "tokens of a pass over the training data / positions of its sequences"},
    {"data/split_documents", "1", kNeither, "documents that lie in more than one sequence"},
    {"data/dropped_tokens", "1", kLower, "tokens of the training data that are in no sequence"},
    {"packing/op_by_op_steps", "1", kLower,
     "steps with more documents than any graph has room for"},
    {"packing/passed_batches", "1", kLower, "batches without a counted target, that no step is of"},
    {"packing/*/steps", "1", kNeither, "steps of the program with room for so many documents"},
    {"packing/*/step_time", "s", kLower, "median time of these steps"},
    {"packing/*/tokens_per_s", "1/s", kHigher, "tokens of a step / median time of these steps"},
    {"offload/exposed_copy", "s", kLower, "time per step in which compute waits for a copy"},
    {"offload/bytes", "B", kNeither, "bytes copied to the host per step"},
    {"offload/bandwidth", "B/s", kHigher, "bytes of a copy / its time"},
    {"offload/*/step_time", "s", kLower, "median time of a step under one plan"},
    {"offload/*/added", "1", kLower, "time that a plan adds to the step that keeps all / its time"},
    {"offload/*/graph_cost", "1", kLower,
     "time that graphs add to the same plan issued op by op / its time"},
    {"offload/*/exposed_copy", "s", kLower, "time per step in which compute waits for a copy"},
    {"offload/*/overlap", "1", kHigher, "part of the copies' time that compute does not wait for"},
    {"offload/worst_prediction", "1", kLower, "largest relative error of a predicted step time"},
    {"communication/*/busy", "s", kNeither,
     "median time of a timed step in which ops of a group of ranks communicate, on rank 0"},
    {"communication/*/exposed", "s", kLower,
     "of it, the median time in which nothing computes beside"},
    {"communication/*/overlap", "1", kHigher, "part of communication that has compute beside it"},
    {"scaling/*/step_time", "s", kLower, "median time of an optimizer step on the slowest rank"},
    {"scaling/*/tokens_per_s", "1/s", kHigher, "tokens of a step / median step time"},
    {"scaling/*/efficiency", "1", kHigher,
     "tokens per second of a rank / those of the point with the fewest ranks"},
    {"scaling/*/graph_gain", "1", kHigher,
     "median step time issued op by op / that of the same steps in graphs"},
    {"scaling/*/communication", "s", kNeither,
     "time of a timed step in which ops communicate, mean over ranks"},
    {"scaling/*/exposed_communication", "s", kLower,
     "of it, the time in which nothing computes beside"},
    {"scaling/*/exposed_copy", "s", kLower,
     "time of a timed step in which only copies run, mean over ranks"},
    {"scaling/*/idle", "s", kLower,
     "time of a timed step in which nothing runs on a rank, mean over ranks"},
    {"scaling/*/device_bytes", "B", kLower, "planned device memory of the fullest rank"},
    {"scaling/*/j_per_token", "J", kLower, "energy of the GPUs of a point / tokens"},
    {"scaling/*/prediction", "1", kNeither, "predicted step time / median step time - 1"},
    {"scaling/worst_prediction", "1", kLower, "largest relative error of a predicted step time"},
    {"comm/*/busbw", "B/s", kHigher, "bus bandwidth of a collective, nccl-tests' formula"},
    {"comm/*/algbw", "B/s", kHigher, "bytes of a collective / its time"},
    {"comm/*/time", "s", kLower, "median time of a collective on the slowest rank"},
    {"comm/*/latency", "s", kLower, "of time = latency + bytes that a rank sends / bandwidth"},
    {"comm/*/bandwidth", "B/s", kHigher, "of time = latency + bytes that a rank sends / bandwidth"},
    {"kernels/*/time", "s", kLower, "median time of a launch"},
    {"kernels/*/flops_per_s", "FLOP/s", kHigher, "FLOP of the contract / median time"},
    {"kernels/*/bytes_per_s", "B/s", kHigher, "bytes of the contract / median time"},
    {"kernels/*/pct_ceiling", "1", kHigher, "rate / measured ceiling of the resource that binds"},
    {"kernels/*/pct_copy", "1", kHigher, "time of a copy of the same bytes in the same run / time"},
    {"ceilings/*/flops_per_s", "FLOP/s", kHigher, "measured matrix-product rate"},
    {"ceilings/*/slowdown", "1", kLower, "median time beside other work / median time alone"},
    {"ceilings/*/bandwidth", "B/s", kHigher, "measured copy rate"},
    {"energy/j_per_token", "J", kLower, "energy of the GPUs from first to last step / tokens"},
    {"ckpt/stall", "s", kLower, "wait for a checkpoint; of those written beside training, if any"},
    {"ckpt/stalled_part", "1", kLower,
     "waiting for checkpoints written beside training / run time"},
    {"ckpt/bytes_per_s", "B/s", kHigher, "bytes of a checkpoint / time until it was whole"},
    {"ckpt/bytes", "B", kNeither, "size of a checkpoint file"},
    {"ckpt/copy_bytes", "B", kLower, "device memory of a rank for a copy of its state"},
});

// A '*' matches one or more parts of the path: kernels/*/time matches kernels/ssd/fwd/t4096/time.
bool matches(std::string_view pattern, std::string_view tag) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == tag;
  const std::string_view head = pattern.substr(0, star);
  const std::string_view tail = pattern.substr(star + 1);
  return tag.size() > head.size() + tail.size() && tag.substr(0, head.size()) == head &&
         tag.substr(tag.size() - tail.size()) == tail;
}

}  // namespace

std::string_view name(Better better) {
  switch (better) {
    case Better::higher:
      return "higher";
    case Better::lower:
      return "lower";
    case Better::neither:
      return "neither";
  }
  return "?";
}

std::span<const MetricInfo> metric_registry() { return kRegistry; }

Metric metric(std::string_view tag, double value) {
  for (const auto& info : kRegistry)
    if (matches(info.tag, tag))
      return {.tag = std::string(tag),
              .value = value,
              .unit = std::string(info.unit),
              .better = info.better,
              .help = std::string(info.help)};
  throw execution::Error(
      execution::Exit::runtime,
      fmt::format("metric {} is not in the registry of results/metric.cpp", tag));
}

Metric metric(std::string_view tag, const Summary& summary) {
  Metric made = metric(tag, summary.median);
  made.median_of = summary.count;
  made.ci95 = summary.ci95;
  return made;
}

Metric rate_metric(std::string_view tag, double work, const Summary& time_s) {
  Metric made = metric(tag, work / time_s.median);
  made.median_of = time_s.count;
  made.ci95 = {work / time_s.ci95.high, work / time_s.ci95.low};
  return made;
}

}  // namespace stowage::results
