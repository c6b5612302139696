#include "execution/host/worker.hpp"

#include <pthread.h>

#include "execution/philox.hpp"

namespace stowage::execution::host {
namespace {

thread_local bool is_worker = false;

/// How long a task is held back: uniform over [0, max), by the backend's seed and the task's place.
std::chrono::nanoseconds delay(const Task& task) {
  const HostOptions& options = task.backend->options;
  if (options.delay_seed == 0) return {};
  const std::uint64_t bits = random_bits(options.delay_seed, stream_of("delay"), task.index);
  const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(unit * options.max_delay_s * 1e9));
}

}  // namespace

Worker::Worker(std::string name, std::function<void()> at_start, std::function<void()> at_stop)
    : name_(std::move(name)),
      at_start_(std::move(at_start)),
      at_stop_(std::move(at_stop)),
      thread_([this] { run(); }) {
  Lock lock(schedule_mutex());
  changed_.wait(lock, [this] { return started_; });
  if (!not_started_) return;
  lock.unlock();
  thread_.join();
  std::rethrow_exception(not_started_);
}

Worker::~Worker() {
  {
    const Lock lock(schedule_mutex());
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

bool Worker::is_current_thread() { return is_worker; }

void Worker::make_ready(const Lock&, TaskPtr task) {
  const bool delayed = task->backend->options.delay_seed != 0;
  const Key key{delayed ? Clock::now() + delay(*task) : Clock::time_point{}, task->index};
  ready_.emplace(key, std::move(task));
  changed_.notify_one();
}

void Worker::run() {
  is_worker = true;
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());  // the kernel's limit
  std::exception_ptr problem;
  try {
    if (at_start_) at_start_();
  } catch (...) {
    problem = std::current_exception();
  }
  Lock lock(schedule_mutex());
  not_started_ = problem;
  started_ = true;
  changed_.notify_all();
  if (problem) return;
  while (!stopping_ || !ready_.empty()) {
    if (ready_.empty()) {
      changed_.wait(lock);
    } else if (const auto start = ready_.begin()->first.first; start > Clock::now()) {
      changed_.wait_until(lock, start);
    } else {
      run_next(lock);
    }
  }
  lock.unlock();
  if (at_stop_) at_stop_();
}

void Worker::run_next(Lock& lock) {
  const TaskPtr task = std::move(ready_.begin()->second);
  ready_.erase(ready_.begin());
  const bool skipped = task->backend->error != nullptr;
  lock.unlock();
  std::exception_ptr error;
  if (!skipped) {
    try {
      (*task->work)();
    } catch (...) {
      error = std::current_exception();
    }
  }
  // Here, without the lock: what the closure holds may use queues and events as it goes.
  task->work.reset();
  lock.lock();
  finish(lock, task, error);
}

}  // namespace stowage::execution::host
