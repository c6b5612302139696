#pragma once

#include <memory>
#include <vector>

#include "execution/backend.hpp"
#include "execution/plan.hpp"

namespace stowage::execution {

/// Which events of a plan stay inside a graph and which tie it to what is outside.
///
/// A wait for what the same segment recorded before is an edge of the graph. Any other wait is an
/// external wait node, and a record that someone else waits for is an external record node.
class CaptureEvents {
 public:
  explicit CaptureEvents(const Plan& plan);

  /// Makes the events of the edges inside a segment; those of the segment before are dropped.
  void begin(Backend& backend, const Segment& segment);
  /// Enqueues the waits of a step of that segment, then its record. `events` are the plan's own.
  void wait(const Step& step, Queue& queue, const std::vector<std::unique_ptr<Event>>& events);
  void record(const Step& step, Queue& queue, const std::vector<std::unique_ptr<Event>>& events);
  /// Keeps the branch of a copy to itself: where the queue has another copy in this segment, that
  /// one follows a record of `event`, for which nobody waits, and not the copy itself.
  ///
  /// A kernel that waits for a copy would otherwise be the first node behind it, since the next
  /// copy is captured later. Traces of CUDA 13.0 showed that kernel, and all kernels behind it, on
  /// the copy's own channel then, and copies to the host at 51 instead of 55 GB/s, which a plan
  /// that fills the link paid with 1 % of its step (one H200). Why they slow down is not known.
  void hold(int step, Queue& queue, Event& event) const;

 private:
  bool inside(int step) const { return step >= segment_.begin && step < segment_.end; }

  const Plan& plan_;
  std::vector<int> recorder_;                  ///< by event: the step that records it
  std::vector<std::vector<int>> waiters_;      ///< by event: the steps that wait for it
  std::vector<std::unique_ptr<Event>> edges_;  ///< by event; null: not one of this segment
  std::vector<char> held_;                     ///< by step of the segment, from its begin on
  Segment segment_;
};

}  // namespace stowage::execution
