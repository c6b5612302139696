#pragma once

#include <vector>

#include "execution/plan.hpp"

namespace stowage::offload {

/// The steps of a plan during which a place must keep its bytes: [begin, end], indices into
/// Plan::steps. One that a carried copy reads wraps, end < begin: it lives from `begin` on and in
/// the next execution up to `end`.
struct LiveRange {
  int place = -1;
  int begin = 0;
  int end = 0;

  bool wraps() const { return end < begin; }
  bool lives_at(int step) const {
    return wraps() ? step >= begin || step <= end : begin <= step && step <= end;
  }

  friend bool operator==(const LiveRange&, const LiveRange&) = default;
};

/// Exact live ranges of all transient and host places, from the operands of the plan's steps.
///
/// A place is live from its first write to its last use. One that is written before a repeating
/// section and used inside it lives until that section's end, since the next period needs it again.
/// One that a carried copy reads lives up to the mark of the next execution that names it.
std::vector<LiveRange> live_ranges(const execution::Plan& plan);

/// Aligned bytes of live places at each step, for one region.
std::vector<std::size_t> live_bytes_by_step(const execution::Plan& plan,
                                            const std::vector<LiveRange>& ranges,
                                            execution::Region region, std::size_t alignment);

}  // namespace stowage::offload
