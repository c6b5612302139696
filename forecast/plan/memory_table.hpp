#pragma once

#include <string>
#include <string_view>

#include "forecast/plan/checkpoint_memory.hpp"
#include "forecast/plan/trainer_plan.hpp"

namespace stowage::forecast {

/// Bytes in GiB.
constexpr double gib(double bytes) { return bytes / (1 << 30); }
constexpr double gib(std::size_t bytes) { return gib(static_cast<double>(bytes)); }
constexpr double gib(std::int64_t bytes) { return gib(static_cast<double>(bytes)); }

/// A line of a table of memory: what it is for, in bytes and GiB.
std::string memory_row(std::string_view what, std::size_t bytes);

/// What one rank of a run takes of device and host memory by class, with its heading. All programs
/// of the run share what is transient; what is live at once, and in gradient memory, is that of its
/// largest training program (`training().back()`).
std::string memory_table(const TrainerPlan& run, const CheckpointMemory& saving);

}  // namespace stowage::forecast
