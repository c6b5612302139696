#include "execution/host/event.hpp"

#include "execution/error.hpp"
#include "execution/host/capture.hpp"

namespace stowage::execution::host {

void EventState::set_record(const Lock& lock, const Frontier& end) {
  recorded = true;
  capture.reset();
  record.clear();
  join(lock, record, end);
}

void EventState::set_captured(const Lock&, std::shared_ptr<Capture> in, std::vector<int> nodes) {
  recorded = false;
  record.clear();
  capture = std::move(in);
  captured = std::move(nodes);
}

HostEvent::HostEvent(std::shared_ptr<BackendState> backend)
    : state_(std::make_shared<EventState>()) {
  state_->backend = std::move(backend);
}

void HostEvent::synchronize() {
  Lock lock(schedule_mutex());
  check_outside(lock);
  ++state_->backend->waits;
  wait_for(lock, state_->record);
  if (state_->backend->error) std::rethrow_exception(state_->backend->error);
}

bool HostEvent::done() {
  const Lock lock(schedule_mutex());
  check_outside(lock);
  return all_done(lock, state_->record);
}

void HostEvent::check_outside(const Lock& lock) const {
  refuse_while_capturing(lock, "the host asked for an event");
  if (state_->capture) state_->capture->fail(lock, "the host asked for an event recorded in it");
}

double HostTimedEvent::time_s() {
  synchronize();
  return *stamp_;
}

const std::shared_ptr<EventState>& host_event(Event& event) {
  if (auto* timed = dynamic_cast<HostTimedEvent*>(&event)) return timed->state();
  auto* ours = dynamic_cast<HostEvent*>(&event);
  if (ours == nullptr) throw Error(Exit::runtime, "an event of another backend on a host queue");
  return ours->state();
}

}  // namespace stowage::execution::host
