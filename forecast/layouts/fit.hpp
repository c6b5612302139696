#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "forecast/plan/trainer_plan.hpp"
#include "inputs/deck/deck.hpp"

/// Plans of what fits into a device, and searches for the largest.
namespace stowage::forecast {

/// What a planned step needs.
struct Fit {
  std::size_t device_bytes = 0;  ///< with the copy of the state that a checkpoint takes
  std::size_t host_bytes = 0;    ///< pinned, homes of states included
  double time_s = 0;
};

/// Plans a step; nothing if it cannot be, or is above `memory` bytes of a device.
/// @param make may refuse (exit 2), too
std::optional<Fit> plan_fit(const std::function<TrainerOptions()>& make, std::int64_t memory);

/// What becomes of saved tensors and optimizer states.
struct Kept {
  enum class Saved { stays, again, leaves, automatic };  ///< `again`, `leaves`: all that can
  std::string_view name;
  Saved saved = Saved::stays;
  std::string_view states = "none";  ///< offload.states
};
inline constexpr Kept kWaysToKeep[] = {
    {.name = "all stays"},
    {.name = "all computed again", .saved = Kept::Saved::again},
    {.name = "and states leave", .saved = Kept::Saved::again, .states = "all"},
    {.name = "all leaves", .saved = Kept::Saved::leaves},
    {.name = "automatic", .saved = Kept::Saved::automatic}};

/// Keys of a deck that keep so, as far as keys can say it: all but Saved::again and Saved::leaves.
std::vector<std::string> overrides_of(const Kept& kept, std::int64_t memory);

/// Runs of one deck that differ in a size.
struct Family {
  std::int64_t first = 1;  ///< size that is tried first
  std::int64_t most = 1;
  std::span<const Kept> ways = kWaysToKeep;  ///< rows of its table
  /// Of a size, with keys on top of the deck's.
  std::function<TrainerOptions(std::int64_t size, const std::vector<std::string>& keys)> options;
};

/// The largest size of a family that fits.
struct LargestFit {
  std::int64_t size = 0;
  Fit fit;
};
/// Guesses by two sizes, since memory is nearly linear in the size, and goes on from there in steps
/// that double. Nothing: not even 1 fits. What is above a size that does not fit does not fit
/// either.
std::optional<LargestFit> largest_fit(const Family& family, const Kept& kept, std::int64_t memory);

/// Device memory in GiB, pinned host memory in GiB, and seconds: cells of a row. "-": not known.
std::string fit_cells(const Fit& fit, bool timed);

}  // namespace stowage::forecast
