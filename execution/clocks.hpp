#pragma once

#include <algorithm>
#include <vector>

namespace stowage::execution {

/// Happens-before among steps issued on in-order queues with events: vector clocks.
///
/// A node is (queue, position in that queue), positions from 1. Each event remembers the clock of
/// its latest record; a wait joins it into the clock of the waiting queue, and an event that has no
/// record yet adds nothing, as in CUDA.
class Clocks {
 public:
  struct Node {
    int queue = 0;
    long position = 0;  ///< 0: before everything
  };

  Clocks(int queues, int events)
      : queues_(static_cast<std::size_t>(queues), Clock(static_cast<std::size_t>(queues), 0)),
        events_(static_cast<std::size_t>(events)) {}

  /// Makes the next node of `queue` follow the latest record of `event`.
  /// @return false if the event has not been recorded before
  bool wait(int queue, int event) {
    const Clock& record = events_[static_cast<std::size_t>(event)];
    Clock& clock = queues_[static_cast<std::size_t>(queue)];
    for (std::size_t i = 0; i < record.size(); ++i) clock[i] = std::max(clock[i], record[i]);
    return !record.empty();
  }

  /// Issues the next node of `queue`.
  Node issue(int queue) {
    return {queue, ++queues_[static_cast<std::size_t>(queue)][static_cast<std::size_t>(queue)]};
  }

  void record(int queue, int event) {
    if (event >= static_cast<int>(events_.size()))
      events_.resize(static_cast<std::size_t>(event) + 1);
    events_[static_cast<std::size_t>(event)] = queues_[static_cast<std::size_t>(queue)];
  }

  /// True if `node` is certainly done before the next node of `queue` starts (or is in it).
  bool before(Node node, int queue) const {
    return queues_[static_cast<std::size_t>(queue)][static_cast<std::size_t>(node.queue)] >=
           node.position;
  }

  Node latest(int queue) const {
    return {queue, queues_[static_cast<std::size_t>(queue)][static_cast<std::size_t>(queue)]};
  }

 private:
  using Clock = std::vector<long>;
  std::vector<Clock> queues_;
  std::vector<Clock> events_;
};

}  // namespace stowage::execution
