#include "offload/carried.hpp"

#include <iterator>
#include <utility>

#include "execution/plan_shape.hpp"

namespace stowage::offload {

using execution::Plan;
using execution::Step;

std::vector<Step> take_carried(Plan& plan) {
  const auto first = static_cast<std::size_t>(execution::first_carried(plan));
  if (first == plan.steps.size()) return {};
  const auto join = plan.steps.begin() + static_cast<std::ptrdiff_t>(first) - 1;
  std::vector<Step> carried(std::make_move_iterator(join),
                            std::make_move_iterator(plan.steps.end()));
  plan.steps.erase(join, plan.steps.end());
  plan.sections.back().end = static_cast<int>(plan.steps.size());
  return carried;
}

void put_back(Plan& plan, std::vector<Step> carried) {
  plan.steps.insert(plan.steps.end(), std::make_move_iterator(carried.begin()),
                    std::make_move_iterator(carried.end()));
  plan.sections.back().end = static_cast<int>(plan.steps.size());
}

}  // namespace stowage::offload
