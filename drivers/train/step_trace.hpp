#pragma once

#include "drivers/train/profile.hpp"
#include "parallel/grid.hpp"
#include "parallel/mpi.hpp"
#include "results/trace.hpp"

namespace stowage::drivers {

/// The last timed step on rank 0, from its first op on, of all ranks of the pipeline that rank 0 is
/// in; where there is none, of all ranks that exchange rows, columns or experts with rank 0. A rank
/// of the trace is a place among them. Empty elsewhere. Collective over `world`.
results::Trace step_trace(const parallel::Communicator& world, const parallel::GridShape& shape,
                          const Profile& profile);

}  // namespace stowage::drivers
