#pragma once

#include <cstdint>
#include <vector>

#include "offload/cargo.hpp"

namespace stowage::offload {

/// Pinned bytes that offloaded tensors need at once: each has its room from the op behind which it
/// leaves to the first of backward that uses it, so microbatches that follow one another share it.
/// Bytes are those of buffers, without what their addresses may add.
class HostRoom {
 public:
  /// @param ops of the program
  /// @param budget bytes; -1: no limit
  HostRoom(std::size_t ops, std::int64_t budget) : taken_(ops, 0), budget_(budget) {}

  /// Takes room for `bytes` of a tensor if there is enough while it is away. @return whether
  bool take(const Cargo& item, std::size_t bytes);

 private:
  std::vector<std::size_t> taken_;  ///< by op
  std::int64_t budget_;
};

}  // namespace stowage::offload
