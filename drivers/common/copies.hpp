#pragma once

#include <string>
#include <vector>

#include "execution/op_timer.hpp"
#include "execution/program.hpp"
#include "offload/summary.hpp"
#include "results/result_set.hpp"

namespace stowage::drivers {

/// What a plan does with the saved tensors of each module; what its copies took in a step that was
/// timed op by op, and how long compute waited for them. @param intervals none: not timed, all
/// times are 0 @param counted_bytes what that step's copies of counted rows moved, by plan step
std::vector<offload::ModuleSummary> timed_modules(
    const execution::Program& program, const execution::Plan& plan,
    const std::vector<execution::OpTimer::Interval>& intervals,
    std::vector<std::size_t> counted_bytes);

/// The modules as rows of a result set. @param timed their times were measured
std::vector<results::ModuleCopies> module_rows(const std::string& plan,
                                               const std::vector<offload::ModuleSummary>& modules,
                                               bool timed);

/// True if any module moves.
bool any_copies(const std::vector<offload::ModuleSummary>& modules);

/// Time that compute waits for copies, and the time of all copies, in both directions.
double exposed_s(const std::vector<offload::ModuleSummary>& modules);
double copying_s(const std::vector<offload::ModuleSummary>& modules);

/// Heading and rows of a table of those modules that move; every line starts with "#   " and
/// `label`.
std::string copies_heading(const std::string& label);
std::string copies_text(const std::string& label,
                        const std::vector<offload::ModuleSummary>& modules);

}  // namespace stowage::drivers
