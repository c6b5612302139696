#pragma once

#include <map>
#include <string>
#include <vector>

#include "execution/op_timer.hpp"
#include "execution/plan.hpp"
#include "offload/prediction.hpp"

namespace stowage::forecast {

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

/// The same of one step as a plan is expected to do it; sections that repeat count as often as they
/// run, their times as in their first period.
std::map<std::string, Exposure> predicted_exposure(const execution::Plan& plan,
                                                   const offload::Prediction& prediction);

/// Where the time of one step on a rank went, each moment in one part: they add up to the time from
/// the first op's begin to the last one's end.
struct StepParts {
  double compute_s = 0;                ///< some op computes
  double exposed_communication_s = 0;  ///< none does, and some op communicates
  double exposed_copies_s = 0;         ///< neither, and some copy runs
  double idle_s = 0;                   ///< nothing runs on any queue

  double total_s() const { return compute_s + exposed_communication_s + exposed_copies_s + idle_s; }
};

StepParts step_parts(const execution::Plan& plan,
                     const std::vector<execution::OpTimer::Interval>& intervals);

}  // namespace stowage::forecast
