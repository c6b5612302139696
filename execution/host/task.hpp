#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "execution/backend.hpp"
#include "execution/function.hpp"

namespace stowage::execution::host {

class Worker;
struct Task;

using Work = Function<void()>;
using TaskPtr = std::shared_ptr<Task>;

/// The tasks that must be done before what comes next: the end of a queue, or a record of an event.
using Frontier = std::vector<TaskPtr>;

/// The one lock of all host backends of the process. It orders enqueues, records, waits, launches
/// and completions ("host order"), and is never held while work runs.
std::mutex& schedule_mutex();
using Lock = std::unique_lock<std::mutex>;

/// What the queues of one backend share.
struct BackendState {
  HostOptions options;
  std::uint64_t tasks = 0;   ///< made so far: the position in the stream of random delays
  std::exception_ptr error;  ///< the first one; work that follows is skipped
  std::uint64_t waits = 0;   ///< of the host, for queues and events
};

/// A piece of work for a worker, run once, after the tasks that it was made to follow.
///
/// Tasks only ever follow older tasks, so that no order of calls can make a cycle.
struct Task {
  std::shared_ptr<BackendState> backend;
  std::shared_ptr<const Work> work;  ///< dropped once it ran
  Worker* worker = nullptr;
  std::uint64_t index = 0;  ///< in its backend
  int unmet = 0;            ///< predecessors that are not done
  bool done = false;
  bool awaited = false;  ///< a host thread waits for it
  std::vector<TaskPtr> successors;
};

/// Makes a task that runs after all of `after`. The lock is held by the caller.
TaskPtr submit(const Lock& lock, std::shared_ptr<BackendState> backend, Worker& worker,
               std::shared_ptr<const Work> work, const Frontier& after);

/// Marks a task done and passes on those that waited for it alone.
void finish(const Lock& lock, const TaskPtr& task, const std::exception_ptr& error);

/// Adds the unfinished tasks of `from` to `to`, once each, and drops the finished ones of `to`.
void join(const Lock& lock, Frontier& to, const Frontier& from);

bool all_done(const Lock& lock, const Frontier& frontier);

/// Blocks until all tasks of `frontier` are done.
/// @throws Error when called by a worker: work may not wait for work
void wait_for(Lock& lock, Frontier frontier);

}  // namespace stowage::execution::host
