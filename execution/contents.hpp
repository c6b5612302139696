#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "execution/plan.hpp"

namespace stowage::execution {

/// Bytes [begin, end).
struct Bytes {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The bytes of a use within a buffer of its tensor: of the payload those of the range, of any
/// other all.
Bytes bytes_of(const Program& program, const Use& use, int buffer);

/// The bytes of a use at one of its places, in the place's region.
Bytes bytes_at(const Program& program, const Use& use, const Place& place);

/// Where the whole of a place's tensor begins, in the place's region: the place itself, or the
/// bucket that it lies in. Modulo 2^64, so that what lies elsewhere shows.
std::size_t origin_of(const Program& program, const Place& place);

/// The buffers of several programs by number: what bytes can hold. A part is known by its whole. A
/// persistent buffer is the same in every program, any other is its program's own.
class Contents {
 public:
  explicit Contents(std::span<const Program* const> programs);

  /// @param program index into those given
  int of(int program, Tensor tensor, int buffer) const;
  /// Where a tensor begins in its whole, in bytes.
  std::size_t first_byte(int program, Tensor tensor) const;
  int count() const { return static_cast<int>(names_.size()); }
  const std::string& name(int content) const { return names_[content]; }
  std::size_t bytes(int content) const { return bytes_[content]; }

 private:
  struct First {
    int content;             ///< of buffer 0; the others follow
    std::size_t first_byte;  ///< in the whole
  };
  const First& first(int program, Tensor tensor) const { return firsts_[program][tensor.id]; }

  std::vector<std::vector<First>> firsts_;  ///< by program and tensor
  std::vector<std::string> names_;
  std::vector<std::size_t> bytes_;
};

}  // namespace stowage::execution
