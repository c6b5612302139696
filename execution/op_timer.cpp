#include "execution/op_timer.hpp"

#include <limits>

#include "execution/error.hpp"

namespace stowage::execution {

OpTimer::OpTimer(Backend& backend, const Plan& plan) {
  for_each_issued(plan, std::numeric_limits<int>::max(), [&](int step, int, int repetition) {
    if (plan.steps[step].what == Step::What::mark) return;
    entries_.push_back({step, repetition, backend.make_timed_event(), backend.make_timed_event()});
  });
}

void OpTimer::begin_step() { next_ = 0; }

void OpTimer::before(int index, Queue& queue) {
  STOWAGE_ASSERT(next_ < entries_.size() && entries_[next_].step == index,
                 "step {} is timed out of order, at {} of {}", index, next_, entries_.size());
  queue.record(*entries_[next_].begin);
}

void OpTimer::after(int, Queue& queue) { queue.record(*entries_[next_++].end); }

std::vector<OpTimer::Interval> OpTimer::intervals() {
  STOWAGE_ASSERT(next_ == entries_.size(), "{} of {} steps were issued", next_, entries_.size());
  std::vector<Interval> all;
  for (const Entry& entry : entries_)
    all.push_back({entry.step, entry.repetition, entry.begin->time_s(), entry.end->time_s()});
  return all;
}

}  // namespace stowage::execution
