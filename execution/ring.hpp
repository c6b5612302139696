#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "execution/backend.hpp"
#include "execution/program.hpp"

namespace stowage::execution {

/// Pinned host slots of a program's inputs and outputs: one set for each of the steps that may be
/// under way. Step s uses set s modulo slots().
class Ring {
 public:
  Ring(Backend& backend, const Program& program, int slots);

  int slots() const { return slots_; }
  bool holds(Tensor tensor) const;
  /// The slot of an input or output for one step.
  /// @throws Error if the tensor is neither
  std::span<std::byte> slot(Tensor tensor, long step) const;

 private:
  struct Entry {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  const Program& program_;
  int slots_;
  std::vector<Entry> entries_;  ///< by tensor id; 0 bytes: not in the ring
  std::size_t set_bytes_ = 0;
  std::unique_ptr<Arena> arena_;
};

}  // namespace stowage::execution
