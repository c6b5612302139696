#pragma once

#include <cstdint>

namespace stowage::parallel {

/// Words in page-locked memory that the GPU writes around each collective of one communicator, also
/// inside a graph, and the host may read at any time.
struct ProgressWords {
  std::uint64_t begun = 0;  ///< collectives begun so far
  std::uint64_t ended = 0;  ///< collectives ended so far
  std::uint64_t index = 0;  ///< of the one begun last
};

/// What a kernel writes there. Passed by value to a launch.
struct ProgressNote {
  ProgressWords* words = nullptr;
  std::uint64_t index = 0;  ///< of the collective that begins
  bool begins = false, ends = false;
};

}  // namespace stowage::parallel
