#pragma once

#include <functional>

#include "execution/timing.hpp"
#include "parallel/job/mpi.hpp"

namespace stowage::parallel {

/// How far this rank's clock is ahead of rank 0's, in seconds. Collective. Known to half of the
/// shortest of some round trips (Cristian, "Probabilistic clock synchronization", section 3): 0
/// where the clocks agree within that, as on one host.
/// @param now this rank's clock
double clock_offset_s(const Communicator& ranks,
                      const std::function<double()>& now = execution::steady_seconds);

}  // namespace stowage::parallel
