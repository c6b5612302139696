#include "offload/hidden.hpp"

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
  for (const Item& item : find_items(drafts.program(), drafts.cargo(), drafts.policy().offload,
                                     drafts.policy().min_tensor_bytes)) {
    for (const int c : item.cargo) of[drafts.cargo()[c].tensor.id] = next;
    ++next;
  }
  return of;
}

/// Takes from `wanted` what comes back in time and was away for a while, whole items, in the order
/// in which they leave. @return what stays
std::vector<Tensor> find_unhidden(const std::vector<Voyage>& wanted, const Itinerary& itinerary,
                                  const Rates& rates, const std::vector<int>& items) {
  const auto item = [&](std::size_t i) { return items[wanted[i].tensor.id]; };
  enum class State : unsigned char { open, taken, stays };
  std::vector<State> states(wanted.size(), State::open);
  const auto set = [&](int which, State state) {
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (item(i) == which) states[i] = state;
  };
  for (std::size_t first = 0; first < wanted.size(); ++first) {
    if (states[first] != State::open) continue;
    set(item(first), State::taken);
    std::vector<Voyage> tried;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (states[i] == State::taken) tried.push_back(wanted[i]);
    const bool in_time = schedule(tried, itinerary, rates) <= 0;
    const bool away = std::all_of(tried.begin(), tried.end(),
                                  [](const Voyage& v) { return v.released < v.back; });
    if (!in_time || !away) set(item(first), State::stays);
  }
  std::vector<Tensor> stay;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (states[i] == State::stays) stay.push_back(wanted[i].tensor);
  return stay;
}

}  // namespace

void keep_unhidden(const Drafts& drafts, Choice& choice) {
  const Draft draft = drafts.make(choice.decisions);
  const std::vector<int> items = items_of(drafts);
  for (const Leg& leg : draft.legs)
    for (const Tensor tensor : find_unhidden(leg.voyages, leg.itinerary, drafts.rates(), items)) {
      choice.decisions[tensor.id] = Decision::keep;
      choice.reasons[tensor.id] = Reason::unhidden;
    }
}

}  // namespace stowage::offload
