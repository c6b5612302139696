#include "execution/host/task.hpp"

#include <algorithm>
#include <condition_variable>

#include "execution/error.hpp"
#include "execution/host/worker.hpp"

namespace stowage::execution::host {
namespace {

/// Wakes host threads in wait_for.
std::condition_variable& awaited_done() {
  static std::condition_variable instance;
  return instance;
}

}  // namespace

std::mutex& schedule_mutex() {
  static std::mutex instance;
  return instance;
}

TaskPtr submit(const Lock& lock, std::shared_ptr<BackendState> backend, Worker& worker,
               std::shared_ptr<const Work> work, const Frontier& after) {
  auto task = std::make_shared<Task>();
  task->index = backend->tasks++;
  task->backend = std::move(backend);
  task->work = std::move(work);
  task->worker = &worker;
  for (const TaskPtr& earlier : after) {
    if (earlier->done) continue;
    earlier->successors.push_back(task);
    ++task->unmet;
  }
  if (task->unmet == 0) worker.make_ready(lock, task);
  return task;
}

void finish(const Lock& lock, const TaskPtr& task, const std::exception_ptr& error) {
  if (error && !task->backend->error) task->backend->error = error;
  task->done = true;
  for (const TaskPtr& next : task->successors) {
    if (--next->unmet == 0) next->worker->make_ready(lock, next);
  }
  task->successors.clear();
  if (task->awaited) awaited_done().notify_all();
}

void join(const Lock&, Frontier& to, const Frontier& from) {
  std::erase_if(to, [](const TaskPtr& task) { return task->done; });
  for (const TaskPtr& task : from) {
    if (!task->done && std::find(to.begin(), to.end(), task) == to.end()) to.push_back(task);
  }
}

bool all_done(const Lock&, const Frontier& frontier) {
  return std::all_of(frontier.begin(), frontier.end(),
                     [](const TaskPtr& task) { return task->done; });
}

// A copy: without the lock, while it waits, others change the caller's frontier.
void wait_for(Lock& lock, Frontier frontier) {
  if (Worker::is_current_thread()) {
    throw Error(Exit::runtime, "an operation on a host queue waits for other work of host queues");
  }
  for (const TaskPtr& task : frontier) {
    task->awaited = true;
    awaited_done().wait(lock, [&task] { return task->done; });
  }
}

}  // namespace stowage::execution::host
