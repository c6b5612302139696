#pragma once

#include <map>
#include <string>
#include <vector>

#include "execution/op_timer.hpp"
#include "execution/plan.hpp"

namespace stowage::drivers {

/// What communication took of one step on a rank.
struct Exposure {
  double busy_s = 0;     ///< some op communicates; its wait for other ranks is part of it
  double exposed_s = 0;  ///< of it, no op computes beside
};

/// By queue: that of each group of ranks ("comm tensor"), and all of them together (kAllGroups),
/// where groups that communicate at once count once. Empty if nothing communicates.
std::map<std::string, Exposure> communication_exposure(
    const execution::Plan& plan, const std::vector<execution::OpTimer::Interval>& intervals);

inline constexpr const char* kAllGroups = "all";

}  // namespace stowage::drivers
