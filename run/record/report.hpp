#pragma once

#include <cstdint>
#include <string>

#include "forecast/plan/checkpoint_memory.hpp"
#include "forecast/plan/trainer_plan.hpp"
#include "inputs/deck/deck.hpp"
#include "results/result_set.hpp"

namespace stowage::run {

/// What one rank needs and does, for people: parameters, memory by class, flops of a step.
results::Fields facts(const inputs::Deck& deck, const std::string& backend,
                      forecast::TrainerPlan& plan, const forecast::CheckpointMemory& saving);
/// The same as text, for --dry-run.
std::string dry_run_text(const inputs::Deck& deck, forecast::TrainerPlan& plan);

/// (query, key) pairs of a step, in the documents of this rank, as a part of those that its program
/// was recorded with: the most that the data can have.
double part_of_recorded(const forecast::TrainerPlan& plan, double pairs);

/// Arithmetic that one step executes on this rank, in FLOP: the program's ops, with attention
/// counted over the documents' true pairs.
/// @param pairs of a step, in the documents of this rank
double executed_flops(const forecast::TrainerPlan& plan, double pairs);

/// Parameters of the model.
std::int64_t parameter_count(const forecast::TrainerPlan& plan);

}  // namespace stowage::run
