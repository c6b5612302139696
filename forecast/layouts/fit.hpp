#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "forecast/plan/trainer_plan.hpp"

/// Searches for the largest run that fits into a device.
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

/// The largest size in [1, most] that fits.
struct LargestFit {
  std::int64_t size = 0;
  Fit fit;
};
/// Guesses by two sizes, since memory is nearly linear in the size, and goes on from there in steps
/// that double. Nothing: not even 1 fits.
/// @param first size that is tried  @param memory of the device
/// @param plan of a size; what is above one that does not fit does not fit either
std::optional<LargestFit> largest_fit(std::int64_t first, std::int64_t most, std::int64_t memory,
                                      const std::function<std::optional<Fit>(std::int64_t)>& plan);

/// Device memory in GiB, pinned host memory in GiB, and seconds: cells of a row. "-": not known.
std::string fit_cells(const Fit& fit, bool timed);

}  // namespace stowage::forecast
