#pragma once

#include <functional>
#include <span>
#include <vector>

#include "drivers/bench_comm/neighbour.hpp"
#include "execution/backend.hpp"
#include "parallel/job/mpi.hpp"

namespace stowage::drivers {

/// How samples are taken.
struct TimingOptions {
  std::int64_t samples = 20;
  std::int64_t warm_up = 2;          ///< samples before those, which are not kept
  int calls = 1;                     ///< of one sample, back to back
  bool graph = false;                ///< as one graph: what issuing costs does not count
  Neighbour* overlapping = nullptr;  ///< works from before each sample until after it
};

/// Times collectives that all ranks of `world` know by the same index. Collective.
///
/// A sample is a train of calls behind one that is not timed, which all ranks end at nearly one
/// moment: ranks that start at different moments do not count. The contenders alternate, sample by
/// sample and each time from the next one on, so that drifts meet all alike.
/// @return seconds of one call on this rank: for each contender its samples
std::vector<std::vector<double>> time_calls(
    const parallel::Communicator& world, execution::Backend& backend, execution::Queue& queue,
    std::span<const std::function<void(execution::Queue&)>> contenders,
    const TimingOptions& options);

}  // namespace stowage::drivers
