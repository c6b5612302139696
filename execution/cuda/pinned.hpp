#pragma once

#include <cstddef>

namespace stowage::execution::cuda {

/// Page-locked host memory next to the current GPU: zeroed, aligned to 2 MiB.
///
/// Pages are made by many threads at once and in large sizes where the system has them, and only
/// then locked: a driver that makes them itself does so on one thread.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes);
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory();

  /// Null if the system has not that much.
  std::byte* data() const { return data_; }

 private:
  void release();

  std::size_t bytes_;
  std::size_t mapped_bytes_;
  void* mapping_;
  std::byte* data_ = nullptr;
};

}  // namespace stowage::execution::cuda
