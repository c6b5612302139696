#include "forecast/plan/checkpoint_memory.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "execution/error.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "forecast/plan/run_section.hpp"
#include "forecast/rates/machine_section.hpp"
#include "offload/offload_section.hpp"
#include "results/format.hpp"

namespace stowage::forecast {
namespace {

using inputs::Deck;

constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();

bool saves(const Deck& deck) { return !inputs::read(deck, &CheckpointConfig::directory).empty(); }

/// What the automatic policy may still take under its budget beside a plan.
std::size_t left_by_budget(const Deck& deck, const TrainerPlan& plan) {
  const std::int64_t budget = inputs::read(deck, &offload::OffloadConfig::device_budget_bytes);
  if (budget == 0 ||
      inputs::read(deck, &offload::OffloadConfig::kind) != offload::Policy::Kind::automatic)
    return kUnknown;
  const std::size_t taken = plan.layout().bytes() + plan.transient_bytes();
  return static_cast<std::size_t>(budget) - std::min(taken, static_cast<std::size_t>(budget));
}

/// What a device of the deck's machine has beside a plan; nothing: not known.
std::optional<std::size_t> left_by_machine(const Deck& deck, const TrainerPlan& plan) {
  if (inputs::read(deck, &MachineConfig::device_memory_bytes) == 0) return std::nullopt;
  const auto usable =
      static_cast<std::size_t>(usable_memory(deck, inputs::key(&CheckpointConfig::copy)));
  const std::size_t taken = plan.layout().bytes() + plan.transient_bytes();
  return usable - std::min(taken, usable);
}

}  // namespace

std::string_view name(CopyPlace place) {
  switch (place) {
    case CopyPlace::none:
      return "none";
    case CopyPlace::device:
      return "device";
    case CopyPlace::host:
      return "host";
  }
  return "?";
}

CheckpointMemory::Rows CheckpointMemory::device_rows() const {
  if (copy != CopyPlace::device) return {};
  return {{"copy for checkpoints", copy_bytes}};
}

CheckpointMemory::Rows CheckpointMemory::host_rows() const {
  if (!saves) return {};
  Rows rows{{"  to write checkpoints", kCheckpointStagingBytes}};
  if (copy == CopyPlace::host) rows.emplace_back("  copy for checkpoints", copy_bytes);
  return rows;
}

std::string CheckpointMemory::text() const {
  if (copy == CopyPlace::none) return "none";
  return fmt::format("{}, {}", name(copy), results::quantity(static_cast<double>(copy_bytes), "B"));
}

bool copies_within_device(const Deck& deck) {
  return saves(deck) &&
         inputs::read(deck, &CheckpointConfig::copy) == CheckpointConfig::Copy::device;
}

CopyPlace CopyChoice::place() const {
  return device ? CopyPlace::device : host ? CopyPlace::host : CopyPlace::none;
}

CopyChoice possible_copies(const Deck& deck, const TrainerPlan& plan, std::size_t left) {
  const auto asked = inputs::read(deck, &CheckpointConfig::copy);
  const std::size_t bytes = plan.state_copy_bytes();
  const auto on_host =
      static_cast<std::size_t>(inputs::read(deck, &CheckpointConfig::host_budget_bytes));
  using Copy = CheckpointConfig::Copy;
  if (asked != Copy::automatic)
    return {.device = asked == Copy::device, .host = asked == Copy::host};
  return {.device = bytes <= std::min(left, left_by_budget(deck, plan)), .host = bytes <= on_host};
}

CheckpointMemory planned_checkpoints(const Deck& deck, const TrainerPlan& plan) {
  if (!saves(deck)) return {};
  const std::optional<std::size_t> left = left_by_machine(deck, plan);
  const std::size_t bytes = plan.state_copy_bytes();
  if (copies_within_device(deck) && left.value_or(0) > 0 && bytes > *left)
    execution::throw_usage(
        "{}: the copy needs {} bytes beside the plan, which leaves {} of {}; allowed here: "
        "\"host\", "
        "\"none\", \"auto\"",
        inputs::cite(deck, &CheckpointConfig::copy), bytes, *left,
        inputs::cite(deck, &MachineConfig::device_memory_bytes));
  return {.saves = true,
          .copy = possible_copies(deck, plan, left.value_or(kUnknown)).place(),
          .copy_bytes = bytes};
}

}  // namespace stowage::forecast
