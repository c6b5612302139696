#include "training/delayed_weights.hpp"

#include <algorithm>

#include "training/balance.hpp"

namespace stowage::training {
namespace {

using execution::Lifetime;
using execution::Program;

enum : int { kForward, kBackward, kWeights };  // as turns_of() numbers the passes

/// The ops of a stage between which a tensor holds something, and the passes they are of.
struct Life {
  int begin = -1, end = -1;
  int first_pass = -1, last_pass = -1;
  int first_back = -1;  ///< the first op that is not of forward

  void use(int op, int pass) {
    if (begin < 0) begin = op, first_pass = pass;
    if (first_back < 0 && pass != kForward) first_back = op;
    end = op, last_pass = pass;
  }
};

bool has(const layers::Stage& stage, int part, int layers) {
  if (part < 0) return stage.embedding;
  return part < layers ? part >= stage.begin && part < stage.end : stage.head;
}

std::vector<Life> lives(const execution::Program& program, const std::vector<int>& passes,
                        const layers::Stage& stage, int layers) {
  std::vector<Life> all(program.tensors().size());
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const execution::Op& op = program.ops()[i];
    if (passes[i] < 0 || op.only_rerun || !has(stage, part_of(program, op, layers), layers))
      continue;
    for (const execution::Use& use : op.uses)
      all[use.tensor.id].use(static_cast<int>(i), passes[i]);
  }
  return all;
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
  const std::vector<Life> all = lives(program, passes, stage, layers);
  std::vector<double> change(program.ops().size() + 1);  // of what is held, op by op
  for (std::size_t t = 0; t < all.size(); ++t) {
    const execution::TensorInfo& info = program.tensors()[t];
    const bool of_microbatch =
        info.lifetime == Lifetime::saved || info.lifetime == Lifetime::scratch;
    Life life = all[t];
    if (!of_microbatch || life.first_pass == life.last_pass) continue;
    if (life.first_pass == kForward && is_away(info, policy))
      life.begin = life.first_back, life.first_pass = passes[life.first_back];
    if (life.first_pass == life.last_pass) continue;
    const auto bytes = static_cast<double>(info.bytes());
    if (life.first_pass == kForward) held.in_flight += bytes;
    if (life.last_pass == kWeights) held.waiting += bytes;
    change[life.begin] += bytes;
    change[static_cast<std::size_t>(life.end) + 1] -= bytes;
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
  const std::vector<int> passes = turns_of(microbatch);
  std::vector<HeldBytes> all;
  for (const layers::Stage& stage : stages)
    all.push_back(held_by(microbatch, passes, stage, layers, policy));
  return all;
}

double most_held(const layers::Turns& turns, const HeldBytes& bytes) {
  double now = 0, most = 0;
  for (const layers::TurnSection& section : turns)
    for (const layers::Turn& turn : section.turns) {
      if (turn.pass == layers::Turn::Pass::forward) now += bytes.in_flight;
      most = std::max(most, now);
      if (turn.pass == layers::Turn::Pass::weights) now -= bytes.waiting;
      if (turn.pass != layers::Turn::Pass::backward) continue;
      now -= bytes.in_flight;
      if (!turn.weights_later) continue;
      most = std::max(most, now + bytes.turning);
      now += bytes.waiting;
    }
  return most;
}

DelayedWeights delay_weights(const std::vector<HeldBytes>& bytes, int microbatches,
                             double bound_bytes) {
  const layers::PipelineShape shape{static_cast<int>(bytes.size())};
  const auto held = [&](const std::vector<int>& delayed) {
    const std::vector<layers::Turns> turns =
        train_in_pipeline(shape, microbatches, layers::PipelineSchedule::zero_bubble, {}, delayed);
    std::vector<double> by_rank;
    for (std::size_t rank = 0; rank < bytes.size(); ++rank)
      by_rank.push_back(most_held(turns[rank], bytes[rank]));
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

}  // namespace stowage::training
