#pragma once

#include <string>
#include <vector>

#include "drivers/bench_offload/bench.hpp"
#include "forecast/plan/trainer_plan.hpp"
#include "parallel/job/mpi.hpp"
#include "results/result_set.hpp"

namespace stowage::drivers {

/// What an outcome is on each stage of a pipeline, on rank 0: that of the stage's first rank. Empty
/// elsewhere, and where there is one stage. Collective over `world`.
std::vector<results::StageNeeds> needs_by_stage(const parallel::Communicator& world,
                                                const forecast::TrainerPlan& trainer,
                                                const OffloadOutcome& outcome);

/// Heading and rows of a table of what the stages of each plan need.
std::string stages_heading();
std::string stages_text(const std::vector<results::StageNeeds>& stages);

}  // namespace stowage::drivers
