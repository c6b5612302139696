#include "forecast/pipeline/delayed_weights.hpp"

#include <algorithm>

#include "execution/analysis.hpp"
#include "forecast/pipeline/balance.hpp"

namespace stowage::forecast {
namespace {

using execution::Lifetime;
using execution::Program;

enum : int { kForward, kBackward, kWeights };  // as passes_of() numbers the passes

bool has(const layers::Stage& stage, int part, int layers) {
  if (part < 0) return stage.embedding;
  return part < layers ? part >= stage.begin && part < stage.end : stage.head;
}

/// Whether a policy is sure to make room for a tensor between forward and backward.
bool is_away(const execution::TensorInfo& info, const offload::Policy& policy) {
  const auto listed = [&](const std::vector<offload::ModuleName>& names) {
    return std::ranges::any_of(names, [&](const auto& name) { return name.covers(info.module); });
  };
  return listed(policy.recompute) ||
         (policy.kind == offload::Policy::Kind::manual && listed(policy.offload));
}

HeldBytes held_by(const execution::Program& program, const std::vector<int>& passes,
                  const layers::Stage& stage, int layers, const offload::Policy& policy) {
  HeldBytes held;
  const auto of_stage = [&](int i, const execution::Op& op) {
    return passes[i] >= 0 && !op.only_rerun && has(stage, part_of(program, op, layers), layers);
  };
  const std::vector<execution::UseSpan> spans = execution::use_spans(program, of_stage);
  const std::vector<execution::UseSpan> behind_forward = execution::use_spans(
      program,
      [&](int i, const execution::Op& op) { return of_stage(i, op) && passes[i] != kForward; });
  std::vector<double> change(program.ops().size() + 1);  // of what is held, op by op
  for (std::size_t t = 0; t < spans.size(); ++t) {
    const execution::TensorInfo& info = program.tensors()[t];
    const bool of_microbatch =
        info.lifetime == Lifetime::saved || info.lifetime == Lifetime::scratch;
    auto [first, last, access] = spans[t];
    if (!of_microbatch || first < 0 || passes[first] == passes[last]) continue;
    if (passes[first] == kForward && is_away(info, policy)) first = behind_forward[t].first;
    if (passes[first] == passes[last]) continue;
    const auto bytes = static_cast<double>(info.bytes());
    if (passes[first] == kForward) held.in_flight += bytes;
    if (passes[last] == kWeights) held.waiting += bytes;
    change[first] += bytes;
    change[static_cast<std::size_t>(last) + 1] -= bytes;
  }
  double now = 0;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    now += change[i];
    if (passes[i] == kBackward) held.turning = std::max(held.turning, now);
  }
  return held;
}

}  // namespace

std::vector<HeldBytes> held_bytes(const execution::Program& microbatch,
                                  const std::vector<layers::Stage>& stages, int layers,
                                  const offload::Policy& policy) {
  const std::vector<int> passes = passes_of(microbatch);
  std::vector<HeldBytes> all;
  for (const layers::Stage& stage : stages)
    all.push_back(held_by(microbatch, passes, stage, layers, policy));
  return all;
}

double most_held(const layers::RankPasses& passes, const HeldBytes& bytes) {
  double now = 0, most = 0;
  for (const layers::PassSection& section : passes)
    for (const layers::Pass& pass : section.passes) {
      if (pass.kind == layers::Pass::Kind::forward) now += bytes.in_flight;
      most = std::max(most, now);
      if (pass.kind == layers::Pass::Kind::weights) now -= bytes.waiting;
      if (pass.kind != layers::Pass::Kind::backward) continue;
      now -= bytes.in_flight;
      if (!pass.weights_later) continue;
      most = std::max(most, now + bytes.turning);
      now += bytes.waiting;
    }
  return most;
}

DelayedWeights delay_weights(const std::vector<HeldBytes>& bytes, int microbatches,
                             double bound_bytes) {
  const layers::PipelineShape shape{static_cast<int>(bytes.size())};
  const auto held = [&](const std::vector<int>& delayed) {
    const std::vector<layers::RankPasses> passes =
        train_in_pipeline(shape, microbatches, layers::PipelineSchedule::zero_bubble, {}, delayed);
    std::vector<double> by_rank;
    for (std::size_t rank = 0; rank < bytes.size(); ++rank)
      by_rank.push_back(most_held(passes[rank], bytes[rank]));
    return by_rank;
  };
  DelayedWeights found;
  found.bound_bytes = bound_bytes;
  found.as_1f1b = bound_bytes <= 0;
  found.microbatches.assign(bytes.size(), 0);  // this is 1F1B
  found.held_bytes = held(found.microbatches);
  if (found.as_1f1b) found.bound_bytes = *std::ranges::max_element(found.held_bytes);
  for (int most = 1; most <= shape.ranks; ++most) {
    std::vector<int> more = found.microbatches;
    for (int rank = 0; rank < shape.ranks; ++rank)
      if (more[rank] == most - 1 && most <= layers::most_delayed(rank)) more[rank] = most;
    const std::vector<double> then = held(more);
    for (std::size_t rank = 0; rank < bytes.size(); ++rank)
      if (then[rank] <= found.bound_bytes && more[rank] == most)
        found.microbatches[rank] = most, found.held_bytes[rank] = then[rank];
  }
  return found;
}

}  // namespace stowage::forecast
