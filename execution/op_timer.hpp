#pragma once

#include <memory>
#include <vector>

#include "execution/backend.hpp"
#include "execution/observer.hpp"
#include "execution/timing.hpp"

namespace stowage::execution {

/// Times every step of a plan between two events on its own queue. The events hold up the queue for
/// a microsecond or two each, so a timed execution is a little slower than others.
class OpTimer final : public Observer {
 public:
  /// When one step of the plan ran, in seconds of the steady clock.
  struct Interval {
    int step = 0;        ///< in Plan::steps
    int repetition = 0;  ///< of the step in this execution: sections repeat
    double begin_s = 0;
    double end_s = 0;

    double time_s() const { return end_s - begin_s; }
  };

  /// Makes all events that an execution of `plan` needs.
  OpTimer(Backend& backend, const Plan& plan);

  void begin_step() override;
  void before(int index, Queue& queue) override;
  void after(int index, Queue& queue) override;

  /// The latest execution in issue order; blocks until it is done.
  std::vector<Interval> intervals();

 private:
  struct Entry {
    int step = 0;
    int repetition = 0;
    std::unique_ptr<TimedEvent> begin, end;
  };
  std::vector<Entry> entries_;  ///< in issue order, marks left out
  std::size_t next_ = 0;
};

}  // namespace stowage::execution
