#pragma once

#include <cstddef>
#include <string>

#include "execution/persistent.hpp"
#include "execution/plan.hpp"
#include "offload/packing.hpp"
#include "offload/policy.hpp"
#include "offload/rates.hpp"
#include "offload/segments.hpp"

namespace stowage::offload {

/// Communication that follows each other as issued, whatever its group: on a GPU, collectives that
/// run beside each other can wait for each other's room for ever.
struct Chains {
  bool chained = false;
  /// A group whose communication is a chain of its own: what waits for another stage of a pipeline
  /// must not hold up what layers exchange.
  std::string apart;
};

struct PlannerOptions {
  /// Multiple of execution::kAlignment; audit mode asks for whole pages.
  std::size_t alignment = execution::kAlignment;
  Policy policy = {};
  Rates rates = {};
  GraphOptions graphs = {};
  Chains chains = {};
  /// Transient bytes below which addresses are not improved on; 0: as few as are found;
  /// kUnbounded: nothing shares bytes, as is quickest.
  std::size_t enough_bytes = 0;
  /// Bytes of the device above which nobody runs the plan: it has no edges then, and no time.
  std::size_t most_device_bytes = kUnbounded;
  /// What was decided for another program with the same tensors; none: the policy decides anew.
  const Choice* given = nullptr;
};

/// Plans a program: what stays, leaves or is computed again, places, queues and edges, with the
/// predicted time. The plan is not verified here; execution::require_proven does that before it
/// runs.
///
/// @param choice set, if given, to what was decided about each tensor, and why
/// @throws Error (exit 2) if a budget cannot be met or the policy asks for what is impossible
execution::Plan make_plan(const execution::Program& program,
                          const execution::PersistentLayout& layout,
                          const PlannerOptions& options = {}, Choice* choice = nullptr);

}  // namespace stowage::offload
