#include "training/part_bytes.hpp"

#include <algorithm>

#include "offload/cargo.hpp"
#include "training/balance.hpp"

namespace stowage::training {
namespace {

using execution::Lifetime;
using execution::Op;
using execution::Program;

PartBytes& at(PartMemory& memory, int part) {
  if (part < 0) return memory.embedding;
  const auto layer = static_cast<std::size_t>(part);
  return layer < memory.layers.size() ? memory.layers[layer] : memory.head;
}

/// The part that a parameter belongs to, by its name.
int part_of(const std::string& parameter, const layers::Model& model) {
  if (parameter == model.embedding().name) return -1;
  int layer = model.config().layers();
  if (parameter.starts_with("layers."))
    layer = std::stoi(parameter.substr(std::string_view("layers.").size()));
  return layer;
}

void add_state(PartMemory& memory, const layers::Model& model, bool zero,
               const parallel::Ranks& holders) {
  const layers::Precision precision = model.precision();
  const auto weight = static_cast<double>(size_bytes(precision.storage));
  const auto accum = static_cast<double>(size_bytes(precision.accumulation()));
  const double updated = (precision.has_master() ? 3 : 2) * accum;  // both moments, and the master
  for (const layers::Parameter& p : model.parameters()) {
    const int ranks = zero ? holders.group(parallel::gradient_group(p.group)).size() : 1;
    const double bytes = static_cast<double>(p.elements()) * (weight + accum + updated / ranks);
    const int part = part_of(p.name, model);
    at(memory, part).state += bytes;
    if (part < 0 && model.config().tied_embeddings) memory.head.state += bytes;
  }
}

/// The ops between which a tensor of a microbatch holds something, and the passes they are of.
struct Life {
  int begin = -1, end = -1;
  int first_turn = -1, last_turn = -1;
};

std::vector<Life> lives(const execution::Program& program, const std::vector<int>& turns) {
  std::vector<Life> all(program.tensors().size());
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (turns[i] < 0 || program.ops()[i].only_rerun) continue;
    for (const execution::Use& use : program.ops()[i].uses) {
      Life& life = all[use.tensor.id];
      if (life.begin < 0) life.begin = static_cast<int>(i), life.first_turn = turns[i];
      life.end = static_cast<int>(i), life.last_turn = turns[i];
    }
  }
  return all;
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
                       const offload::Policy& policy, bool zero, const parallel::Ranks& holders) {
  const int layers = model.config().layers();
  PartMemory memory{{}, std::vector<PartBytes>(static_cast<std::size_t>(layers)), {}};
  add_state(memory, model, zero, holders);
  std::vector<char> is_cargo(microbatch.tensors().size());
  for (const offload::Cargo& cargo : offload::find_cargo(microbatch)) is_cargo[cargo.tensor.id] = 1;
  const std::vector<Life> all = lives(microbatch, turns_of(microbatch));
  std::vector<double> change(microbatch.ops().size() + 1);  // of what is live, op by op
  for (std::size_t t = 0; t < all.size(); ++t) {
    const execution::TensorInfo& info = microbatch.tensors()[t];
    const Life& life = all[t];
    if (!is_of_microbatch(info) || life.begin < 0) continue;
    const auto bytes = static_cast<double>(info.bytes());
    const Op& maker = microbatch.ops()[life.begin];
    PartBytes& part = at(memory, part_of(microbatch, maker, layers));
    if (life.first_turn == 0 && life.last_turn > 0) {
      if (std::ranges::any_of(policy.recompute,
                              [&](const auto& name) { return name.covers(info.module); }))
        continue;
      const double movable =
          is_cargo[t] ? static_cast<double>(offload::movable_bytes(info, policy.min_tensor_bytes))
                      : 0;
      part.movable += movable;
      part.fixed += bytes - movable;
    } else if (life.first_turn == life.last_turn) {
      change[life.begin] += bytes;
      change[static_cast<std::size_t>(life.end) + 1] -= bytes;
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

InFlight in_flight(layers::PipelineShape shape, const std::vector<layers::Turns>& turns) {
  InFlight all(turns.size());
  for (std::size_t rank = 0; rank < turns.size(); ++rank) {
    std::vector<int> now(static_cast<std::size_t>(shape.virtual_stages));
    for (const layers::TurnSection& section : turns[rank])
      for (const layers::Turn& turn : section.turns) {
        int& of_stage = now[turn.chunk];
        if (turn.pass == layers::Turn::Pass::forward) {
          ++of_stage;
          all[rank].insert(now);
        } else if (turn.pass == layers::Turn::Pass::weights ||
                   (turn.pass == layers::Turn::Pass::backward && !turn.weights_later)) {
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

}  // namespace stowage::training
