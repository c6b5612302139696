#pragma once

#include "parallel/groups/grid.hpp"
#include "parallel/job/mpi.hpp"
#include "results/trace.hpp"
#include "run/record/profile.hpp"

namespace stowage::run {

/// The last timed step on rank 0, from its first op on, of all ranks of the pipeline that rank 0 is
/// in; where there is none, of all ranks that exchange rows, columns or experts with rank 0. A rank
/// of the trace is a place among them. Empty elsewhere. Collective over `world`.
results::Trace step_trace(const parallel::Communicator& world, const parallel::GridShape& shape,
                          const Profile& profile);

}  // namespace stowage::run
