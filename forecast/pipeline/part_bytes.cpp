#include "forecast/pipeline/part_bytes.hpp"

#include <algorithm>

#include "execution/analysis.hpp"
#include "forecast/pipeline/balance.hpp"
#include "offload/saved_tensors.hpp"

namespace stowage::forecast {
namespace {

using execution::Lifetime;
using execution::Op;
using execution::Program;

PartBytes& at(PartMemory& memory, int part) {
  if (part < 0) return memory.embedding;
  const auto layer = static_cast<std::size_t>(part);
  return layer < memory.layers.size() ? memory.layers[layer] : memory.head;
}

/// Bytes of an element of a class that a rank has on the device.
double on_device(const layers::StateOptions& state, std::string_view name, execution::Dtype dtype) {
  return static_cast<double>(size_bytes(dtype)) * (1 - state.host.of(name));
}

/// Of its states, with a master and an average among them.
double states_on_device(const layers::StateOptions& state, layers::Precision precision,
                        const layers::Optimizer& rule) {
  const execution::Dtype accum = precision.accumulation();
  double sum = state.type.has_master(precision) ? on_device(state, layers::kMaster, accum) : 0;
  if (state.ema) sum += on_device(state, layers::kEma, accum);
  for (std::size_t i = 0; i < rule.states.size(); ++i)
    sum += on_device(state, rule.states[i], state.type.of(i, precision));
  return sum;
}

void add_state(PartMemory& memory, const layers::Model& model, const layers::StateOptions& state,
               bool zero, const parallel::Ranks& holders) {
  const layers::Precision precision = model.precision();
  const double weight = on_device(state, layers::kParameter, precision.storage);
  const double gradient = on_device(state, layers::kGradient, state.type.gradient(precision));
  for (const layers::Parameter& p : model.parameters()) {
    const double updated = states_on_device(state, precision, state.optimizer->of(p));
    const int ranks = zero ? holders.group(parallel::gradient_group(p.group)).size() : 1;
    const double bytes = static_cast<double>(p.elements()) * (weight + gradient + updated / ranks);
    const int part = model.part_of(p.name);
    at(memory, part).state += bytes;
    if (part < 0 && model.head_has_embedding()) memory.head.state += bytes;
  }
}

bool is_of_microbatch(const execution::TensorInfo& info) {
  return info.lifetime == Lifetime::saved || info.lifetime == Lifetime::scratch;
}

}  // namespace

PartBytes& PartBytes::operator+=(const PartBytes& other) {
  state += other.state;
  fixed += other.fixed;
  movable += other.movable;
  working = std::max(working, other.working);
  return *this;
}

PartBytes stage_bytes(const layers::Stage& stage, const PartMemory& memory) {
  PartBytes all;
  if (stage.embedding) all += memory.embedding;
  for (int i = stage.begin; i < stage.end; ++i) all += memory.layers[i];
  if (stage.head) all += memory.head;
  return all;
}

PartMemory count_bytes(const layers::Model& model, const execution::Program& microbatch,
                       const offload::Policy& policy, const layers::StateOptions& state, bool zero,
                       const parallel::Ranks& holders) {
  const int layers = model.config().layers();
  PartMemory memory{{}, std::vector<PartBytes>(static_cast<std::size_t>(layers)), {}};
  add_state(memory, model, state, zero, holders);
  std::vector<char> is_saved_tensor(microbatch.tensors().size());
  for (const offload::SavedTensor& saved : offload::find_saved_tensors(microbatch))
    is_saved_tensor[saved.tensor.id] = 1;
  const std::vector<int> passes = passes_of(microbatch);
  const std::vector<execution::UseSpan> spans = execution::use_spans(
      microbatch, [&](int i, const Op& op) { return passes[i] >= 0 && !op.only_rerun; });
  std::vector<double> change(microbatch.ops().size() + 1);  // of what is live, op by op
  for (std::size_t t = 0; t < spans.size(); ++t) {
    const execution::TensorInfo& info = microbatch.tensors()[t];
    const auto [first, last, access] = spans[t];
    if (!is_of_microbatch(info) || first < 0) continue;
    const auto bytes = static_cast<double>(info.bytes());
    const Op& maker = microbatch.ops()[first];
    PartBytes& part = at(memory, part_of(microbatch, maker, layers));
    if (passes[first] == 0 && passes[last] > 0) {
      if (std::ranges::any_of(policy.recompute,
                              [&](const auto& name) { return name.covers(info.module); }))
        continue;
      const double movable =
          is_saved_tensor[t]
              ? static_cast<double>(offload::movable_bytes(info, policy.min_tensor_bytes))
              : 0;
      part.movable += movable;
      part.fixed += bytes - movable;
    } else if (passes[first] == passes[last]) {
      change[first] += bytes;
      change[static_cast<std::size_t>(last) + 1] -= bytes;
    }
  }
  double live = 0;
  for (std::size_t i = 0; i < microbatch.ops().size(); ++i) {
    live += change[i];
    PartBytes& part = at(memory, part_of(microbatch, microbatch.ops()[i], layers));
    part.working = std::max(part.working, live);
  }
  return memory;
}

InFlight in_flight(layers::PipelineShape shape, const std::vector<layers::RankPasses>& passes) {
  InFlight all(passes.size());
  for (std::size_t rank = 0; rank < passes.size(); ++rank) {
    std::vector<int> now(static_cast<std::size_t>(shape.virtual_stages));
    for (const layers::PassSection& section : passes[rank])
      for (const layers::Pass& pass : section.passes) {
        int& of_stage = now[pass.chunk];
        if (pass.kind == layers::Pass::Kind::forward) {
          ++of_stage;
          all[rank].insert(now);
        } else if (pass.kind == layers::Pass::Kind::weights ||
                   (pass.kind == layers::Pass::Kind::backward && !pass.weights_later)) {
          --of_stage;
        }
      }
  }
  return all;
}

Overflow overflow(const DeviceRoom& room, int rank, const std::vector<PartBytes>& stages) {
  if (room.budget_bytes <= 0) return {};
  PartBytes all;
  for (const PartBytes& stage : stages) all += stage;
  Overflow most;
  for (const std::vector<int>& counts : room.in_flight[rank]) {
    double stays = all.state + all.working, movable = 0;
    for (std::size_t chunk = 0; chunk < stages.size(); ++chunk) {
      stays += counts[chunk] * stages[chunk].fixed;
      movable += counts[chunk] * stages[chunk].movable;
    }
    most.over_bytes = std::max(most.over_bytes, stays - room.budget_bytes);
    const double leaves = std::clamp(stays + movable - room.budget_bytes, 0.0, movable);
    if (movable > 0)  // a tensor that leaves does so in every microbatch
      most.copies_s =
          std::max(most.copies_s, leaves / movable * all.movable * room.copy_s_per_byte);
  }
  return most;
}

}  // namespace stowage::forecast
