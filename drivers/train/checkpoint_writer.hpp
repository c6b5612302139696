#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "drivers/common/whole_tensors.hpp"
#include "execution/backend.hpp"
#include "results/checkpoint_draft.hpp"

namespace stowage::drivers {

/// One rank's share of checkpoints: the elements that it speaks for, copied aside between two steps
/// and written from there while training goes on. A state of tens of gigabytes takes several steps
/// over the link to the host, so the copy is made within device memory where there is room.
class CheckpointWriter {
 public:
  /// Where the copy lies until it is written; none: there is no copy, and training waits.
  enum class Copy : unsigned char { none, device, host };

  /// Parts of one tensor follow each other; a rank that has nothing of a tensor has an empty one.
  struct Part {
    results::TensorSpec whole;
    TensorPart part;
  };

  /// Takes all memory that it will need.
  /// @param asked nothing: in device memory if it has room for the copy and some GiB more, else on
  /// the host if the budget allows it, else none
  /// @param host_budget bytes of pinned memory, for a copy on the host
  /// @throws Error (exit 3) if the memory that was asked for is not there
  CheckpointWriter(execution::Backend& backend, std::vector<Part> parts, std::optional<Copy> asked,
                   std::size_t host_budget);

  Copy copy() const { return copy_; }
  std::size_t bytes() const { return bytes_; }  ///< of all parts

  /// Copies all parts aside; the device must be idle.
  void take();

  /// Writes all parts to where their tensors begin in a file: from the copy, or from where they lie
  /// if it is `as_it_is` or there is none. Any thread may call it, one at a time.
  /// @return this rank's sums of all tensors; empty if it was abandoned on the way
  std::vector<results::TensorDigest> write(const results::TensorBytes& file,
                                           std::span<const std::int64_t> offsets, bool as_it_is,
                                           const std::atomic<bool>& abandoned);

 private:
  /// Neighbours in memory, which are copied as one.
  struct Span {
    const std::byte* from;
    std::size_t at, bytes;
  };
  struct Piece;

  void lay_out();
  void take_memory(std::optional<Copy> asked, std::size_t host_budget);
  void fetch(const Piece& piece, std::byte* to);

  execution::Backend& backend_;
  std::vector<Part> parts_;
  std::vector<std::size_t> tensors_;  ///< of each part: how many tensors come before its own
  std::vector<std::size_t> at_;       ///< of each part in the copy
  std::vector<Span> spans_;
  std::size_t bytes_ = 0, copy_bytes_ = 0;
  Copy copy_ = Copy::none;
  std::unique_ptr<execution::Arena> aside_;    ///< the copy
  std::unique_ptr<execution::Arena> staging_;  ///< two pieces, pinned
  std::unique_ptr<execution::Queue> queue_;
};

/// "device", "host" or "none".
std::string_view name(CheckpointWriter::Copy copy);

}  // namespace stowage::drivers
