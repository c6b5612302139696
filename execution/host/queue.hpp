#pragma once

#include <memory>
#include <string>
#include <vector>

#include "execution/host/capture.hpp"
#include "execution/host/worker.hpp"

namespace stowage::execution::host {

/// A queue of the host backend: a chain of tasks on one worker, or of nodes while it is captured.
class HostQueue final : public Queue {
 public:
  HostQueue(std::shared_ptr<BackendState> backend, std::shared_ptr<Worker> worker,
            std::string name);
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;
  /// Waits for the work of the queue; if an exception is under way, work not begun is dropped.
  ~HostQueue() override;

  void* stream() const override { return nullptr; }
  void enqueue(Function<void()> work) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void copy_rows(void* to, const void* from, const CountedRows& rows) override;
  void record(Event& event, EventUse use) override;
  void wait(Event& event, EventUse use) override;
  void synchronize() override;

  /// See Backend.
  void begin_capture();
  std::unique_ptr<Graph> end_capture();

  /// The end of this queue, for a graph launch to follow and to replace.
  /// @throws Error if the queue is captured, or belongs to another backend than the graph
  Frontier& end_for_launch(const Lock& lock, const std::shared_ptr<BackendState>& backend);

 private:
  void check_thread(const Capture& capture) const;
  void check_use(EventUse use) const;
  void add_node(Node node);
  void close_capture(const Lock& lock, std::vector<Node>& nodes);
  void join_capture(const Lock& lock, const EventState& event);

  std::shared_ptr<BackendState> backend_;
  std::shared_ptr<Worker> worker_;
  std::string name_;
  int exceptions_;  ///< under way when the queue was made
  Frontier frontier_;
  std::shared_ptr<Capture> capture_;
  std::vector<int> captured_;  ///< the frontier inside the capture
};

/// @throws Error if the queue was not made by a host backend
HostQueue& host_queue(Queue& queue);

}  // namespace stowage::execution::host
