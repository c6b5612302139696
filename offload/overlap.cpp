#include "offload/overlap.hpp"

#include <algorithm>
#include <numeric>

#include "offload/manual.hpp"

namespace stowage::offload {

using execution::Decision;
using execution::Tensor;

namespace {

/// By tensor id: what it is decided about with. Tensors of one item of the policy share a number.
std::vector<int> items_of(const Drafts& drafts) {
  const std::size_t tensors = drafts.program().tensors().size();
  std::vector<int> of(tensors);
  std::iota(of.begin(), of.end(), 0);
  if (drafts.policy().kind != Policy::Kind::manual) return of;
  auto next = static_cast<int>(tensors);
  for (const Item& item : find_items(drafts.program(), drafts.saved_tensors(),
                                     drafts.policy().offload, drafts.policy().min_tensor_bytes)) {
    for (const int c : item.saved) of[drafts.saved_tensors()[c].tensor.id] = next;
    ++next;
  }
  return of;
}

/// Takes from `wanted` what comes back in time and was away for a while, whole items, in the order
/// in which they leave. @return those that would wait
std::vector<Tensor> find_exposed(const std::vector<OffloadCopy>& wanted,
                                 const ComputeTimeline& timeline, const Rates& rates,
                                 const std::vector<int>& items) {
  const auto item = [&](std::size_t i) { return items[wanted[i].tensor.id]; };
  enum class State : unsigned char { open, taken, exposed };
  std::vector<State> states(wanted.size(), State::open);
  const auto set = [&](int which, State state) {
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (item(i) == which) states[i] = state;
  };
  for (std::size_t first = 0; first < wanted.size(); ++first) {
    if (states[first] != State::open) continue;
    set(item(first), State::taken);
    std::vector<OffloadCopy> tried;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (states[i] == State::taken) tried.push_back(wanted[i]);
    const bool in_time = schedule(tried, timeline, rates) <= 0;
    const bool away = std::all_of(tried.begin(), tried.end(),
                                  [](const OffloadCopy& v) { return v.released < v.back; });
    if (!in_time || !away) set(item(first), State::exposed);
  }
  std::vector<Tensor> exposed;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (states[i] == State::exposed) exposed.push_back(wanted[i].tensor);
  return exposed;
}

}  // namespace

void keep_exposed(const Drafts& drafts, Choice& choice) {
  const Draft draft = drafts.make(choice.decisions);
  const std::vector<int> items = items_of(drafts);
  for (const SectionSchedule& section : draft.sections)
    for (const Tensor tensor :
         find_exposed(section.copies, section.timeline, drafts.rates(), items)) {
      choice.decisions[tensor.id] = Decision::keep;
      choice.reasons[tensor.id] = Reason::exposed;
    }
}

}  // namespace stowage::offload
