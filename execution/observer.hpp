#pragma once

#include "execution/plan.hpp"
#include "execution/queue.hpp"

namespace stowage::execution {

/// Looks on while an executor issues a plan: profilers and timers. It may record events on the
/// queue, and may change nothing else.
class Observer {
 public:
  virtual ~Observer() = default;
  /// True if it must see every op by itself: then no graph is launched in place of its ops.
  virtual bool sees_ops() const { return true; }
  /// A new execution of the plan begins.
  virtual void begin_step() {}
  /// Around the work of one step of the plan. @param index in Plan::steps
  virtual void before(int index, Queue& queue) = 0;
  virtual void after(int index, Queue& queue) = 0;
};

}  // namespace stowage::execution
