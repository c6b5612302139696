#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "execution/device.hpp"
#include "execution/ring.hpp"
#include "execution/verifier.hpp"

namespace stowage::execution {

class Audit;
class CaptureEvents;
class Observer;

struct ExecutorOptions {
  int ring_slots = 3;  ///< the host runs at most ring_slots - 1 steps ahead
  bool audit = false;  ///< host backend: run op by op and check each op's declared uses; no graphs
  int warmup_steps = 0;  ///< issued op by op before the plan's graphs are captured
  bool proven = false;   ///< the plan was proven already, with the others of the run
};

/// What an executor has issued since it was made. What a graph holds counts at every launch.
struct ExecutorCounters {
  long launches = 0;  ///< of graphs
  long runs = 0;      ///< ops that ran, copies of inputs and outputs among them
  long reruns = 0;
  long copies_out = 0;
  long copies_in = 0;
  std::size_t bytes_out = 0;  ///< of counted rows: those that were moved until now
  std::size_t bytes_in = 0;

  ExecutorCounters& operator+=(const ExecutorCounters& other);
  friend bool operator==(const ExecutorCounters&, const ExecutorCounters&) = default;
};

/// Runs a plan, over and over. Decides nothing.
class Executor {
 public:
  /// Verifies the plan, binds every operand to its address and captures the plan's graphs. The
  /// program must outlive this.
  /// @throws Error if the plan is not proven, does not fit the device, or cannot be captured
  Executor(const Program& program, Plan plan, Device& device, const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// The pinned slot of an input for the next step; blocks until the slot is free.
  std::span<std::byte> stage(Tensor input);
  /// Issues one step. Every input must have been staged since the last one.
  void step();
  /// Content of an output of a step that is done: `ago` steps before the last one issued. Blocks
  /// until then; valid until ring_slots more steps are issued.
  std::span<const std::byte> result(Tensor output, int ago = 0);

  /// When the last op of a step ended (`ago` as in result()), in seconds of the steady clock, taken
  /// on queue 0 itself: the host may look later. Blocks until then.
  double end_time_s(int ago = 0);

  /// Adds one who looks on from the next step on; it must live until removed.
  void add(Observer& observer) { observers_.push_back(&observer); }
  void remove(Observer& observer) { std::erase(observers_, &observer); }

  const Program& program() const { return program_; }
  const Plan& plan() const { return plan_; }
  long steps() const { return steps_; }
  ExecutorCounters counters() const;
  /// Bytes that copies of counted rows have moved until now, by step of the plan, in all periods of
  /// sections that repeat; 0 of other steps; empty: no copy counts rows. A part of those of a step
  /// that is under way.
  std::vector<std::size_t> counted_bytes() const;
  /// Nodes of each graph, by segment; none before they are captured.
  std::vector<std::size_t> graph_nodes() const;

 private:
  struct Bound {
    std::vector<void*> addresses;
    std::vector<View> views;
    int issue = 0;     ///< see Queue
    CountedRows rows;  ///< of a copy that counts its rows
  };

  void bind();
  void bind_counted_rows();
  void bind_range(const Use& use, std::size_t first, void*& address, View& view);
  void choose_queues();
  std::size_t slot_of(int ago) const;
  void capture();
  std::unique_ptr<Graph> capture(const Segment& segment, CaptureEvents& events);
  /// What one execution of steps [begin, end) adds to the counters.
  ExecutorCounters count(int begin, int end) const;
  void issue_all();
  void issue(int index);
  void launch(std::size_t segment);
  void work(const Step& step, const Bound& bound, Queue& queue);
  void copy_ring(const Op& op, const Bound& bound, Queue& queue);

  const Program& program_;
  Plan plan_;
  Device& device_;
  ExecutorOptions options_;
  Ring ring_;
  std::vector<Bound> bound_;       ///< by step
  std::deque<TensorInfo> ranges_;  ///< what views of ranges show
  std::unique_ptr<Arena> moved_;   ///< bytes that each copy of counted rows has moved
  std::vector<Queue*> queues_;     ///< by queue of the plan
  std::vector<Queue*> work_;       ///< by step: the queue that it is issued or captured on
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<std::unique_ptr<TimedEvent>> done_;  ///< by ring slot: the end of its step
  std::vector<Observer*> observers_;
  std::unique_ptr<Audit> audit_;
  bool captured_ = false;
  std::vector<std::unique_ptr<Graph>> graphs_;     ///< by segment; empty: not captured (yet)
  std::vector<ExecutorCounters> issued_by_graph_;  ///< by segment
  ExecutorCounters counters_;
  std::vector<char> staged_;  ///< by tensor id
  long steps_ = 0;
};

}  // namespace stowage::execution
