#pragma once

#include <vector>

#include "offload/draft.hpp"

namespace stowage::offload {

/// The automatic policy.
///
/// Without a budget: offloads all that can leave and come back without being waited for. With one:
/// looks for the decisions with the least predicted time whose peak fits. Two orders are fixed: of
/// recomputing (least time for a byte first, and of equals the last in forward, which have the
/// least time to travel) and of offloading (earliest in forward first). For many lengths of the
/// first list, the shortest length of the second that fits is found by bisection. The best of these
/// is then made better tensor by tensor: what saves time and still fits is taken.
///
/// @param budget transient bytes; 0: only what is free
/// @throws Error (exit 2) that says what is missing and what is left, if nothing fits
Choice choose_automatic(const Drafts& drafts, std::size_t budget);

/// Decisions that leave few bytes on the device, whatever the time: more and more of the last
/// tensors of forward are computed again, and all others that can leave do.
std::vector<Choice> least_choices(const Drafts& drafts);

}  // namespace stowage::offload
