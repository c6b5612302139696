#pragma once

#include "drivers/train/profile.hpp"
#include "parallel/grid.hpp"
#include "parallel/mpi.hpp"
#include "results/trace.hpp"

namespace stowage::drivers {

/// The last timed step of all ranks of the pipeline that rank 0 is in, on rank 0, from its first op
/// on: a rank of the trace is a place in the pipeline. Empty elsewhere. Collective over `world`.
results::Trace pipeline_trace(const parallel::Communicator& world, const parallel::GridShape& shape,
                              const Profile& profile);

}  // namespace stowage::drivers
