#pragma once

#include <cstdint>
#include <vector>

#include "offload/saved_tensors.hpp"

namespace stowage::offload {

/// Pinned bytes that offloaded tensors need at once: each has its room from the op behind which it
/// leaves to the first of backward that uses it, so microbatches that follow one another share it.
/// Bytes are those of buffers, without what their addresses may add.
class HostRoom {
 public:
  /// @param ops of the program
  explicit HostRoom(std::size_t ops) : change_(ops + 1, 0) {}

  void add(const SavedTensor& item, std::size_t bytes);
  void remove(const SavedTensor& item, std::size_t bytes);
  /// The most that is away at once.
  std::int64_t most() const;

 private:
  std::vector<std::int64_t> change_;  ///< by op, against the op before
};

}  // namespace stowage::offload
