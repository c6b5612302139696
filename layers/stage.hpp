#pragma once

#include "layers/step.hpp"

namespace stowage::layers {

/// Letters of one stage of a pipeline: those between two cuts '|' of the pattern, or an equal share
/// of the layers, the first stages one more, if it has no cuts.
/// @throws Error (exit 2) if the pattern has cuts, but not for this many stages, or too few layers
std::string stage_pattern(const std::string& pattern, int stage, int stages);

/// What a stage computes while its pipeline is full, for planning: `in_flight` microbatches go
/// forward, then each goes backward, in the same order (1F1B, arXiv 2104.04473, where stage p of P
/// has P - p in flight). All of it lies in one section, so each microbatch has memory of its own.
///
/// It is a whole step without optimizer: embedding and head are there on every stage.
Program record_stage(Model& model, const StepShape& shape, int in_flight);

}  // namespace stowage::layers
