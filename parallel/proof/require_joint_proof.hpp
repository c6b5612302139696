#pragma once

#include <span>

#include "parallel/job/mpi.hpp"
#include "parallel/proof/joint_proof.hpp"

namespace stowage::parallel {

/// Proves before step 1 that the programs of a run cannot block, as planned on all ranks.
///
/// Collective over `world`, the ranks of the job. Rank 0 gathers the traces and proves them; every
/// rank learns what it found.
/// @throws Error on all ranks, with all sentences of prove_jointly, if anything is wrong
void require_joint_proof(const Communicator& world,
                         std::span<const execution::PlannedProgram> programs,
                         RankOrder order = RankOrder::partial);

}  // namespace stowage::parallel
