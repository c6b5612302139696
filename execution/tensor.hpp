#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "execution/dtype.hpp"

namespace stowage::execution {

/// What a tensor is for, which decides where it lives and for how long.
///
/// parameter, gradient, optimizer_state and sequence_state (what is kept of a sequence from one of
/// its tokens to the next) are persistent: one place per name for the whole run, the same in every
/// program. saved tensors are kept from forward to backward (the planner may
/// offload or recompute them). scratch lives from its first write to its last use. input is copied
/// in before a step, output is copied out after it.
enum class Lifetime : std::uint8_t {
  parameter,
  gradient,
  optimizer_state,
  sequence_state,
  saved,
  scratch,
  input,
  output
};

/// True for tensors whose bytes outlive a step.
constexpr bool is_persistent(Lifetime lifetime) {
  return lifetime == Lifetime::parameter || lifetime == Lifetime::gradient ||
         lifetime == Lifetime::optimizer_state || lifetime == Lifetime::sequence_state;
}

/// "parameter", "gradient", …
std::string_view name(Lifetime lifetime);

/// A handle: its facts are in a Program, its bytes in a Plan. It owns nothing.
struct Tensor {
  int id = -1;

  explicit operator bool() const { return id >= 0; }
  friend bool operator==(Tensor, Tensor) = default;
};

/// Elements [begin, end) of a buffer in row-major order; end < 0: up to the last.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = -1;

  friend bool operator==(const Range&, const Range&) = default;
};

/// One buffer of a tensor: the payload, or its scales, counts or offsets.
struct BufferInfo {
  std::string role = "payload";
  Dtype dtype = Dtype::fp32;
  std::vector<std::int64_t> shape;

  std::int64_t elements() const;
  std::size_t bytes() const;
};

/// How many rows of a tensor, of its first extent, hold something, from the first on: the last
/// element of `count`, an int32 in device memory, which the host does not know. What lies behind
/// them is never read.
struct LeadingRows {
  Tensor count;  ///< written by one op, before the rows, and never moved; none: all rows
  std::int64_t expected = 0;  ///< what predictions count with
};

/// From how many times the expected rows on a copy between device and host counts them. Copy
/// engines know no counts, so such a copy is a kernel, whose blocks stand where compute wants to
/// be; engines move room that holds nothing beside compute, which hardly notices, until the link
/// has no time left.
inline constexpr std::int64_t kCountedRoom = 4;

/// The facts of a tensor.
struct TensorInfo {
  std::string name;
  std::vector<BufferInfo> buffers;
  Lifetime lifetime = Lifetime::scratch;
  std::string module;  ///< name of design section 5 for a saved tensor; empty: never moved
  LeadingRows rows = {};
  /// A part lies in the payload of another tensor, its whole, from this element on: a parameter in
  /// its bucket. A tensor that is not a part is its own whole.
  Tensor whole = {};
  std::int64_t first = 0;

  std::size_t bytes() const;  ///< of all buffers, unpadded
  /// Whether copies between device and host move the rows that hold something, or all.
  bool counts_rows() const;
  /// Bytes of a buffer that such a copy is expected to move.
  std::size_t moved_bytes(int buffer) const;
};

/// The facts of a tensor of one buffer.
TensorInfo one_buffer(std::string name, Dtype dtype, std::vector<std::int64_t> shape,
                      Lifetime lifetime, std::string module = {});

/// A tensor bound to bytes for one step of a plan: all that a kernel sees.
///
/// `data[b]` is the address of buffer b. A use that names a range is seen as a tensor of its own:
/// one dimension with the elements of the range. `info` outlives the view.
struct View {
  std::span<void* const> data;
  const TensorInfo* info = nullptr;

  explicit operator bool() const { return info != nullptr; }

  template <class T>
  T* as(std::size_t buffer = 0) const {
    return static_cast<T*>(data[buffer]);
  }
  const BufferInfo& buffer(std::size_t index = 0) const { return info->buffers[index]; }
  Dtype dtype(std::size_t index = 0) const { return buffer(index).dtype; }
  std::int64_t extent(std::size_t dimension, std::size_t index = 0) const {
    return buffer(index).shape[dimension];
  }
  std::size_t rank(std::size_t index = 0) const { return buffer(index).shape.size(); }
};

}  // namespace stowage::execution
