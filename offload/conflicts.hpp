#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "execution/plan.hpp"

namespace stowage::offload {

/// Which steps of a plan may not change their order: they have an operand in common and one of them
/// writes it (by place, so it is known before addresses are; a bucket by the parts that a use
/// names), or one waits for what the other records.
class Conflicts {
 public:
  Conflicts(const execution::Program& program, const execution::Plan& plan);

  /// Calls `visit(step)` for all steps before `step` that it must follow.
  template <class Visit>
  void for_each_before(int step, Visit&& visit) const {
    for_each(step, [&](const std::vector<Access>& list, bool writes) {
      for (const Access& other : list) {
        if (other.step >= step) break;
        if (writes || other.writes) visit(other.step);
      }
    });
  }

  /// Calls `visit(step)` for all steps behind `step` that must follow it.
  template <class Visit>
  void for_each_after(int step, Visit&& visit) const {
    for_each(step, [&](const std::vector<Access>& list, bool writes) {
      for (std::size_t i = list.size(); i-- > 0 && list[i].step > step;)
        if (writes || list[i].writes) visit(list[i].step);
    });
  }

 private:
  struct Access {
    int step;
    bool writes;
  };

  template <class Visit>
  void for_each(int step, Visit&& visit) const {
    for (const auto& [place, writes] : uses_[step]) visit(by_place_[place], writes);
  }
  void note(int step, int place, bool writes);

  std::vector<std::vector<Access>> by_place_;  ///< and by event behind them, in the order of steps
  std::vector<std::vector<std::pair<int, bool>>>
      uses_;  ///< by step: place or event, and if it is written
};

}  // namespace stowage::offload
