#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>

namespace stowage::results {

/// Threads that one process has for a large file, at most: one makes digests and moves bytes to or
/// from the system's cache at some 1 to 3 GB/s, so that together they keep up with a fast disk.
inline constexpr int kMostFileThreads = 4;

/// As many as there are cores that nobody else needs, within the bound; at least one.
constexpr int file_threads(int cores) { return std::clamp(cores, 1, kMostFileThreads); }

/// The numbers [0, count), each given out once.
class Turns {
 public:
  explicit Turns(std::size_t count) : count_(count) {}

  /// The next one; empty: there are no more.
  std::optional<std::size_t> next();
  /// No more are given.
  void stop() { next_ = count_; }

 private:
  std::size_t count_;
  std::atomic<std::size_t> next_ = 0;
};

/// Runs body(0) … body(threads - 1) at once, the first on this thread, and returns when all have
/// ended; fewer, where no more threads can be had: whatever is to be done is in `turns`. An error
/// of one stops these.
/// @throws the error of the first that had one
void on_threads(int threads, Turns& turns, const std::function<void(int thread)>& body);

}  // namespace stowage::results
