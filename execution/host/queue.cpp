#include "execution/host/queue.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>

#include "execution/error.hpp"
#include "execution/host/graph.hpp"

namespace stowage::execution::host {

HostQueue::HostQueue(std::shared_ptr<BackendState> backend, std::shared_ptr<Worker> worker,
                     std::string name)
    : backend_(std::move(backend)),
      worker_(std::move(worker)),
      name_(std::move(name)),
      exceptions_(std::uncaught_exceptions()) {}

// An operation that ends its own queue ends the program: it would wait for itself.
// NOLINTNEXTLINE(bugprone-exception-escape)
HostQueue::~HostQueue() {
  std::vector<Node> dropped;  // destroyed without the lock: they may own a worker
  Lock lock(schedule_mutex());
  if (capture_) {
    std::erase(capture_->queues, this);
    if (capture_->origin == this) close_capture(lock, dropped);
  }
  if (std::uncaught_exceptions() > exceptions_ && !backend_->error) {
    backend_->error = std::make_exception_ptr(
        Error(Exit::runtime, fmt::format("queue '{}' was abandoned by an exception", name_)));
  }
  wait_for(lock, frontier_);
}

void HostQueue::enqueue(Function<void()> work) {
  auto shared = std::make_shared<const Work>(std::move(work));
  const Lock lock(schedule_mutex());
  if (capture_) {
    Node node;
    node.work = shared;  // `shared` goes last, without the lock, if this is refused
    node.worker = worker_;
    add_node(std::move(node));
  } else {
    frontier_ = {submit(lock, backend_, *worker_, std::move(shared), frontier_)};
  }
}

void HostQueue::copy(void* to, const void* from, std::size_t bytes) {
  enqueue([=] { std::memmove(to, from, bytes); });
}

void HostQueue::copy_rows(void* to, const void* from, const CountedRows& rows) {
  enqueue([=] {
    const std::size_t bytes =
        std::min(rows.most, static_cast<std::size_t>(*rows.count) * rows.row_bytes);
    std::memmove(to, from, bytes);
    // Read by the thread that issues, whenever it likes.
    std::atomic_ref(*rows.moved).fetch_add(bytes, std::memory_order_relaxed);
  });
}

void HostQueue::record(Event& event, EventUse use) {
  const auto& state = host_event(event);
  if (auto* timed = dynamic_cast<HostTimedEvent*>(&event))
    enqueue([stamp = timed->stamp()] { *stamp = steady_seconds(); });
  const Lock lock(schedule_mutex());
  check_use(use);
  if (!capture_) {
    state->set_record(lock, frontier_);
  } else if (use == EventUse::external) {
    Node node;
    node.kind = Node::Kind::record;
    node.event = state;
    add_node(std::move(node));
  } else {
    check_thread(*capture_);
    state->set_captured(lock, capture_, captured_);
  }
}

void HostQueue::wait(Event& event, EventUse use) {
  const auto& state = host_event(event);
  const Lock lock(schedule_mutex());
  check_use(use);
  if (use == EventUse::external) {
    Node node;
    node.kind = Node::Kind::wait;
    node.event = state;
    add_node(std::move(node));
  } else if (state->capture) {
    join_capture(lock, *state);
  } else if (!capture_) {
    join(lock, frontier_, state->record);
  } else if (state->recorded) {
    capture_->fail(lock, fmt::format("queue '{}' waits for an event recorded outside of the "
                                     "capture, without EventUse::external",
                                     name_));
  }
}

void HostQueue::synchronize() {
  Lock lock(schedule_mutex());
  refuse_while_capturing(lock, fmt::format("queue '{}' was synchronized", name_));
  if (capture_) capture_->fail(lock, fmt::format("queue '{}' was synchronized", name_));
  ++backend_->waits;
  wait_for(lock, frontier_);
  if (backend_->error) std::rethrow_exception(backend_->error);
}

void HostQueue::begin_capture() {
  const Lock lock(schedule_mutex());
  if (capture_)
    throw Error(Exit::runtime, fmt::format("queue '{}' is being captured already", name_));
  capture_ = make_capture(lock, *this, name_);
  captured_.clear();
}

std::unique_ptr<Graph> HostQueue::end_capture() {
  std::vector<Node> nodes;  // destroyed without the lock: they may own a worker
  const Lock lock(schedule_mutex());
  if (!capture_) throw Error(Exit::runtime, fmt::format("no capture on queue '{}'", name_));
  check_thread(*capture_);
  if (capture_->origin != this)
    capture_->fail(lock, fmt::format("it was ended on queue '{}'", name_));
  const std::shared_ptr<Capture> capture = capture_;
  close_capture(lock, nodes);
  if (!capture->failure.empty()) throw Error(Exit::runtime, capture->failure);
  if (const std::string fork = unjoined(nodes, captured_); !fork.empty())
    capture->fail(lock, fmt::format("the work forked to queue '{}' was not joined", fork));
  return std::make_unique<HostGraph>(backend_, std::move(nodes), captured_);
}

void HostQueue::close_capture(const Lock& lock, std::vector<Node>& nodes) {
  const std::shared_ptr<Capture> capture = std::move(capture_);
  for (HostQueue* queue : capture->queues) queue->capture_.reset();
  forget(lock, *capture);
  nodes.swap(capture->nodes);
}

Frontier& HostQueue::end_for_launch(const Lock& lock,
                                    const std::shared_ptr<BackendState>& backend) {
  if (capture_) capture_->fail(lock, fmt::format("a graph was launched on queue '{}'", name_));
  STOWAGE_ASSERT(backend == backend_, "queue '{}' and the graph are of different backends", name_);
  return frontier_;
}

void HostQueue::check_thread(const Capture& capture) const {
  if (capture.thread != std::this_thread::get_id())
    throw Error(
        Exit::runtime,
        fmt::format("queue '{}' is used by another host thread than the one that captures", name_));
}

void HostQueue::check_use(EventUse use) const {
  if (use == EventUse::external && !capture_)
    throw Error(Exit::runtime,
                fmt::format("EventUse::external on queue '{}', which is not captured", name_));
}

void HostQueue::add_node(Node node) {
  check_thread(*capture_);
  node.queue = name_;
  node.after = captured_;
  captured_ = {capture_->add(std::move(node))};
}

void HostQueue::join_capture(const Lock& lock, const EventState& event) {
  if (!event.capture->live)
    throw Error(Exit::runtime, fmt::format("queue '{}' waits for an event that was last recorded "
                                           "in a capture that has ended",
                                           name_));
  check_thread(*event.capture);
  if (!capture_) {
    capture_ = event.capture;
    captured_.clear();
    capture_->queues.push_back(this);
  }
  if (event.capture != capture_) {
    const std::string why = fmt::format("queue '{}' waits for an event of another capture", name_);
    event.capture->failure = why;
    capture_->fail(lock, why);
  }
  for (const int node : event.captured) {
    if (std::find(captured_.begin(), captured_.end(), node) == captured_.end())
      captured_.push_back(node);
  }
}

HostQueue& host_queue(Queue& queue) {
  auto* ours = dynamic_cast<HostQueue*>(&queue);
  if (ours == nullptr) throw Error(Exit::runtime, "a queue of another backend given to the host's");
  return *ours;
}

}  // namespace stowage::execution::host
