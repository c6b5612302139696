#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "execution/backend.hpp"
#include "execution/timing.hpp"
#include "forecast/plan/checkpoint_memory.hpp"
#include "layers/state/state_copy.hpp"
#include "results/checkpoint_draft.hpp"
#include "run/state/whole_tensors.hpp"

namespace stowage::run {

/// One rank's share of checkpoints: the elements that it speaks for, copied aside between two steps
/// and written from there while training goes on. A state of tens of gigabytes takes several steps
/// over the link to the host, so the copy is made within device memory where there is room.
class CheckpointWriter {
 public:
  /// Parts of one tensor follow each other; a rank that has nothing of a tensor has an empty one.
  struct Part {
    results::TensorSpec whole;
    TensorPart part;
  };

  /// How many threads write: while training goes on, and while it waits.
  struct Threads {
    int overlapping = 1, alone = 1;
  };

  /// Takes all memory that it will need.
  /// @param copy where the copy lies until it is written
  /// @throws Error (exit 3) if the memory is not there
  CheckpointWriter(execution::Backend& backend, std::vector<Part> parts, forecast::CopyPlace copy,
                   Threads threads);
  /// Waits for a copy that is being made.
  ~CheckpointWriter();

  forecast::CopyPlace copy() const { return copy_; }
  std::size_t copy_bytes() const { return layout_.bytes; }

  /// Has a queue copy all parts aside, behind what was issued to it and before what will be; the
  /// host goes on. No write may be under way.
  void take(execution::Queue& queue);
  /// The end of the latest copy.
  execution::TimedEvent& taken() { return *taken_; }

  /// Writes all parts to where their tensors begin in a file: from the copy, or from where they lie
  /// if it is `as_it_is` or there is none. Any thread may call it, one at a time.
  /// @return this rank's sums of all tensors; empty if it was abandoned on the way
  std::vector<results::TensorDigest> write(const results::TensorBytes& file,
                                           std::span<const std::int64_t> offsets, bool as_it_is,
                                           const std::atomic<bool>& abandoned);

 private:
  struct Piece;
  struct Task;

  std::vector<Piece> pieces(bool as_it_is, std::size_t piece_bytes) const;
  std::vector<results::TensorDigest> write_some(const Task& task, int thread);

  execution::Backend& backend_;
  std::vector<Part> parts_;
  std::vector<std::size_t> tensors_;  ///< of each part: how many tensors come before its own
  layers::CopyLayout layout_;         ///< of the parts, by their addresses
  forecast::CopyPlace copy_;
  Threads threads_;
  std::unique_ptr<execution::Arena> aside_;                ///< the copy
  std::unique_ptr<execution::Arena> staging_;              ///< two pieces of every thread, pinned
  std::vector<std::unique_ptr<execution::Queue>> queues_;  ///< of every thread
  std::unique_ptr<execution::TimedEvent> taken_;
};

}  // namespace stowage::run
