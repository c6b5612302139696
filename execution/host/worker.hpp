#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "execution/host/task.hpp"

namespace stowage::execution::host {

/// A thread that runs tasks as they become ready, the oldest first.
///
/// One that serves several queues needs no more than that: a queue that waits has no ready task, so
/// it cannot hold up the others. With random delays each ready task gets a time before which it
/// does not start, and the others may overtake it.
class Worker {
 public:
  /// Starts the thread and returns when `at_start` is done, or throws what that has thrown.
  /// `at_stop` runs in it at the end.
  explicit Worker(std::string name, std::function<void()> at_start = {},
                  std::function<void()> at_stop = {});
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  /// Joins the thread; its queues and graphs are gone and have waited for their tasks.
  ~Worker();

  void make_ready(const Lock& lock, TaskPtr task);

  /// True in the thread of any worker.
  static bool is_current_thread();

 private:
  using Clock = std::chrono::steady_clock;
  using Key = std::pair<Clock::time_point, std::uint64_t>;  ///< earliest start, then age

  void run();
  void run_next(Lock& lock);

  std::string name_;
  std::function<void()> at_start_;
  std::function<void()> at_stop_;
  std::multimap<Key, TaskPtr> ready_;
  std::condition_variable changed_;
  bool started_ = false;
  std::exception_ptr not_started_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace stowage::execution::host
