#pragma once

#include <algorithm>
#include <vector>

namespace stowage::execution {

/// Happens-before among steps issued on in-order queues, with events and graph launches: vector
/// clocks (Mattern, "Virtual time and global states of distributed systems", section 3).
///
/// A node is (chain, position in that chain), positions from 1. A queue is a chain. Steps of a
/// graph are captured on queues but do not join their order: those on the queue that launches the
/// graph are in its chain, those on another queue q are in the chain of (launching queue, q), which
/// has an order because all launches on one queue have one. Each event remembers the clock of its
/// latest record; a wait joins it, and an event that has no record yet adds nothing, as in CUDA.
class Clocks {
 public:
  struct Node {
    int chain = 0;
    long position = 0;  ///< 0: before everything
  };
  using Clock = std::vector<long>;

  /// What an event holds: all that was done before it, and the launch in which it was recorded.
  struct Record {
    Clock clock;      ///< empty: never recorded
    long launch = 0;  ///< 0: outside of graphs
  };

  Clocks(int queues, int events)
      : queues_(queues),
        chains_(static_cast<std::size_t>(queues), Clock(static_cast<std::size_t>(queues), 0)),
        inner_(static_cast<std::size_t>(queues) * static_cast<std::size_t>(queues), -1),
        forked_(static_cast<std::size_t>(queues), 0),
        events_(static_cast<std::size_t>(events)) {}

  /// What is issued from here to end_launch() is one launch of a graph on `queue`.
  void launch(int queue) {
    launching_ = queue;
    launch_ = ++launches_;
    forked_.assign(forked_.size(), 0);
    forked_[queue] = 1;
  }
  void end_launch() {
    launching_ = -1;
    launch_ = 0;
  }
  bool launching() const { return launching_ >= 0; }
  /// True if work on `queue` belongs to the launch under way: the queue launches it, or has waited
  /// for an event recorded in it.
  bool forked(int queue) const { return forked_[queue] != 0; }
  /// True if the latest record of `event` is in the launch under way.
  bool recorded_inside(int event) const { return launching() && events_[event].launch == launch_; }

  /// Makes the next node of `queue` follow the latest record of `event`.
  /// @return false if the event has not been recorded before
  bool wait(int queue, int event) {
    const Record& record = events_[event];
    if (recorded_inside(event)) forked_[queue] = 1;
    Clock& clock = chains_[chain_of(queue)];
    if (clock.size() < record.clock.size()) clock.resize(record.clock.size(), 0);
    for (std::size_t i = 0; i < record.clock.size(); ++i)
      clock[i] = std::max(clock[i], record.clock[i]);
    return !record.clock.empty();
  }

  /// Issues the next node of `queue`.
  Node issue(int queue) {
    const auto chain = static_cast<std::size_t>(chain_of(queue));
    return {static_cast<int>(chain), ++chains_[chain][chain]};
  }

  void record(int queue, int event) { set_record(event, here(queue)); }
  /// What a record on `queue` would hold now.
  Record here(int queue) { return {chains_[chain_of(queue)], launch_}; }
  void set_record(int event, Record record) {
    if (event >= static_cast<int>(events_.size()))
      events_.resize(static_cast<std::size_t>(event) + 1);
    events_[event] = std::move(record);
  }

  /// True if `node` is certainly done before the next node of `queue` starts (or is in it).
  bool before(Node node, int queue) { return before(node, Node{chain_of(queue), 0}); }
  /// The same for `latest`, the node that was issued last on its chain.
  bool before(Node node, Node latest) const {
    const Clock& clock = chains_[latest.chain];
    const auto chain = static_cast<std::size_t>(node.chain);
    return (chain < clock.size() ? clock[chain] : 0) >= node.position;
  }

  /// The last node issued on `queue`, of the launch under way if there is one.
  Node latest(int queue) {
    const int chain = chain_of(queue);
    return {chain, chains_[chain][chain]};
  }

 private:
  int chain_of(int queue) {
    if (launching_ < 0 || launching_ == queue) return queue;
    int& chain = inner_[launching_ * queues_ + queue];
    if (chain < 0) {
      chain = static_cast<int>(chains_.size());
      chains_.emplace_back(static_cast<std::size_t>(chain) + 1, 0);
    }
    return chain;
  }

  int queues_;
  std::vector<Clock> chains_;  ///< the queues, then (launching queue, queue) as they are met
  std::vector<int> inner_;     ///< chain of (launching queue, queue)
  std::vector<char> forked_;   ///< by queue, in the launch under way
  std::vector<Record> events_;
  int launching_ = -1;
  long launch_ = 0;
  long launches_ = 0;
};

}  // namespace stowage::execution
