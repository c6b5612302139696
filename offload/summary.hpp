#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "offload/policy.hpp"
#include "offload/prediction.hpp"

namespace stowage::offload {

/// What a plan does with the saved tensors of one module name in a step, and what that is expected
/// to take.
struct ModuleSummary {
  std::string module;
  std::size_t bytes = 0;               ///< of all its tensors
  std::size_t offloaded = 0;           ///< bytes that go to the host, measured or expected
  std::size_t recomputed = 0;          ///< bytes that are computed again
  std::size_t in_gradient_memory = 0;  ///< bytes that lie where gradients are written later
  int copies = 0;                      ///< to the host; as many come back
  double d2h_s = 0;                    ///< time of its copies to the host
  double h2d_s = 0;                    ///< and back
  double waited_s = 0;                 ///< compute waits for its copies, in either direction
  std::vector<Reason> reasons;         ///< all that apply to any of its tensors
};

/// One entry for each module name that a program saves, in the order of forward, and one ("states")
/// for what outlives a step and comes from its home on the host. Sections that
/// repeat count as often as they run, their times as in their first period, also where periods
/// count other rows.
///
/// @param prediction when each step of the plan begins and ends, predicted or measured; that of
///        marks is not looked at
std::vector<ModuleSummary> summarize(const execution::Program& program, const execution::Plan& plan,
                                     const Choice& choice, const Prediction& prediction);

/// Bytes of all saved tensors that lie where gradients are written later.
std::size_t bytes_in_gradient_memory(const execution::Program& program,
                                     const execution::Plan& plan);

}  // namespace stowage::offload
