#include "execution/capture.hpp"

#include <algorithm>
#include <set>

namespace stowage::execution {

CaptureEvents::CaptureEvents(const Plan& plan)
    : plan_(plan), recorder_(recorders(plan)), waiters_(recorder_.size()) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    for (const int event : plan.steps[i].waits) waiters_[event].push_back(static_cast<int>(i));
}

void CaptureEvents::begin(Backend& backend, const Segment& segment) {
  segment_ = segment;
  edges_.clear();
  edges_.resize(recorder_.size());
  for (std::size_t event = 0; event < recorder_.size(); ++event)
    if (inside(recorder_[event]) && std::any_of(waiters_[event].begin(), waiters_[event].end(),
                                                [this](int step) { return inside(step); }))
      edges_[event] = backend.make_event();
  held_.assign(static_cast<std::size_t>(segment.end - segment.begin), 0);
  std::set<int> later;  // queues that have a copy behind
  for (int i = segment.end; i-- > segment.begin;) {
    const Step& step = plan_.steps[i];
    if (is_copy(step)) held_[i - segment.begin] = !later.insert(step.queue).second;
  }
}

void CaptureEvents::wait(const Step& step, Queue& queue,
                         const std::vector<std::unique_ptr<Event>>& events) {
  // The edges first: one of them brings the queue into the capture.
  for (const int event : step.waits)
    if (const auto& edge = edges_[event]) queue.wait(*edge);
  for (const int event : step.waits)
    if (const auto at = static_cast<std::size_t>(event); !edges_[at])
      queue.wait(*events[at], EventUse::external);
}

void CaptureEvents::record(const Step& step, Queue& queue,
                           const std::vector<std::unique_ptr<Event>>& events) {
  if (step.records < 0) return;
  const auto at = static_cast<std::size_t>(step.records);
  if (std::any_of(waiters_[at].begin(), waiters_[at].end(),
                  [this](int waiter) { return !inside(waiter); }))
    queue.record(*events[at], EventUse::external);
  // The edge last: the node of the external record has to be joined too.
  if (edges_[at]) queue.record(*edges_[at]);
}

void CaptureEvents::hold(int step, Queue& queue, Event& event) const {
  if (held_[step - segment_.begin]) queue.record(event, EventUse::external);
}

}  // namespace stowage::execution
