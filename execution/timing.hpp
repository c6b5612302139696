#pragma once

#include <chrono>

#include "execution/queue.hpp"

namespace stowage::execution {

/// An event that also knows when it happened. Made by a Backend.
class TimedEvent : public Event {
 public:
  /// When the latest record happened, in seconds of the steady clock; blocks until then. Times of
  /// two events of one device compare to about a microsecond, of host and device to some tens.
  virtual double time_s() = 0;
};

/// Seconds of the steady clock now.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace stowage::execution
