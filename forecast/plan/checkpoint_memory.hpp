#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "forecast/plan/trainer_plan.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::forecast {

/// Where the state is copied to before it is written; none: there is no copy, and training waits.
enum class CopyPlace : unsigned char { none, device, host };

/// "device", "host" or "none".
std::string_view name(CopyPlace place);

/// Pinned memory through which a rank writes its part of a checkpoint: two pieces of each thread,
/// which are long enough for a link and a disk.
inline constexpr std::size_t kCheckpointStagingBytes = std::size_t{32} << 20;

/// What checkpoints of a run take on one rank, beside its plan.
struct CheckpointMemory {
  bool saves = false;  ///< the deck names a directory
  CopyPlace copy = CopyPlace::none;
  std::size_t copy_bytes = 0;  ///< wherever it lies; what it would have, if there is none

  std::size_t device_bytes() const { return copy == CopyPlace::device ? copy_bytes : 0; }
  std::size_t host_bytes() const {
    return (saves ? kCheckpointStagingBytes : 0) + (copy == CopyPlace::host ? copy_bytes : 0);
  }
  /// For tables of memory: the parts of these by name, none where they are nothing.
  using Rows = std::vector<std::pair<std::string_view, std::size_t>>;
  Rows device_rows() const;
  Rows host_rows() const;
  /// "device, 28.7 GB"; "none": training waits.
  std::string text() const;
};

/// Whether a deck asks that a copy of the state lies in device memory, so that plans have room.
bool copies_within_device(const inputs::Deck& deck);

/// Where checkpoint.copy = "auto" puts the copy: in device memory if it has room, else on the host
/// within checkpoint.host_budget_bytes, else nowhere. Ranks that save together take what all can.
struct CopyChoice {
  bool device, host;

  CopyPlace place() const;
};

/// @param left device bytes that nobody else takes; a budget of the deck may leave less
CopyChoice possible_copies(const inputs::Deck& deck, const TrainerPlan& plan, std::size_t left);

/// What a deck's checkpoints take beside a plan, where the machine is known by the deck alone
/// (machine.device_memory_bytes, without which only a budget bounds the copy).
/// @throws Error (exit 2) if checkpoint.copy = "device" needs what the plan leaves no room for
CheckpointMemory planned_checkpoints(const inputs::Deck& deck, const TrainerPlan& plan);

}  // namespace stowage::forecast
