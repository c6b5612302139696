#pragma once

#include <memory>
#include <vector>

#include "execution/host/task.hpp"

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

/// @throws Error if the event was not made by a host backend
const std::shared_ptr<EventState>& host_event(Event& event);

}  // namespace stowage::execution::host
