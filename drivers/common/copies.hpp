#pragma once

#include <string>
#include <vector>

#include "execution/op_timer.hpp"
#include "execution/program.hpp"
#include "offload/summary.hpp"

namespace stowage::drivers {

/// What the copies of each module did in a step that was timed op by op, and how long compute
/// waited for them. Modules of which nothing moves are left out.
std::vector<offload::ModuleSummary> timed_copies(
    const execution::Program& program, const execution::Plan& plan,
    const std::vector<execution::OpTimer::Interval>& intervals);

/// Time that compute waits for copies, and the time of all copies, in both directions.
double exposed_s(const std::vector<offload::ModuleSummary>& modules);
double copying_s(const std::vector<offload::ModuleSummary>& modules);

/// Heading and rows of a table of such modules; every line starts with "#   " and `label`.
std::string copies_heading(const std::string& label);
std::string copies_text(const std::string& label,
                        const std::vector<offload::ModuleSummary>& modules);

}  // namespace stowage::drivers
