#pragma once

#include <memory>
#include <vector>

#include "execution/host/task.hpp"
#include "execution/timing.hpp"

namespace stowage::execution::host {

struct Capture;

/// What queues and graphs know of an event; outlives the event while a graph uses it.
struct EventState {
  std::shared_ptr<BackendState> backend;
  bool recorded = false;             ///< at least once, and last outside of a capture
  Frontier record;                   ///< what the latest record waits for, less what was done then
  std::shared_ptr<Capture> capture;  ///< in which it was last recorded, if in one
  std::vector<int> captured;         ///< the nodes of that capture that were recorded

  void set_record(const Lock& lock, const Frontier& end);
  void set_captured(const Lock& lock, std::shared_ptr<Capture> in, std::vector<int> nodes);
};

/// An event of the host backend.
class HostEvent final : public Event {
 public:
  explicit HostEvent(std::shared_ptr<BackendState> backend);

  void synchronize() override;
  bool done() override;

  const std::shared_ptr<EventState>& state() const { return state_; }

 private:
  void check_outside(const Lock& lock) const;

  std::shared_ptr<EventState> state_;
};

/// The same with the time of the latest record, which is a task of its own in the queue.
class HostTimedEvent final : public TimedEvent {
 public:
  explicit HostTimedEvent(std::shared_ptr<BackendState> backend) : event_(std::move(backend)) {}

  void synchronize() override { event_.synchronize(); }
  bool done() override { return event_.done(); }
  double time_s() override;

  const std::shared_ptr<EventState>& state() const { return event_.state(); }
  /// Where the queue that records the event writes the time.
  const std::shared_ptr<double>& stamp() const { return stamp_; }

 private:
  HostEvent event_;
  std::shared_ptr<double> stamp_ = std::make_shared<double>(0);
};

/// @throws Error if the event was not made by a host backend
const std::shared_ptr<EventState>& host_event(Event& event);

}  // namespace stowage::execution::host
