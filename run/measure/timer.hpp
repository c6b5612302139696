#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "run/measure/gpu.hpp"

namespace stowage::run {

/// Enqueues the work to be timed; it may not wait for anything.
using Work = std::function<void(execution::Queue&)>;

/// Times work on the GPU's compute queue with CUDA events.
class Timer {
 public:
  explicit Timer(Gpu& gpu);
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();

  /// `samples` times in seconds of each contender: sample 0 of all, sample 1 of all, and so on,
  /// each time from the next contender on, so that drifts of clock and temperature meet all alike.
  /// Before each, the L2 cache is filled with other data. Warm-up: at least three rounds, and until
  /// `warm_up_s` have passed.
  std::vector<std::vector<double>> alternate(std::span<const Work> contenders, int samples,
                                             double warm_up_s = 0.05);

  /// One sample, with what the caller enqueues around it; waits for the queue.
  double once(const Work& work);

  /// Clocks and power while the latest of these calls ran, read once all its work was enqueued.
  const GpuState& state() const { return state_; }

 private:
  struct Events;
  void scrub();

  Gpu& gpu_;
  std::unique_ptr<execution::Arena> scratch_;  ///< several times the L2
  std::unique_ptr<Events> events_;
  GpuState state_{};
};

}  // namespace stowage::run
