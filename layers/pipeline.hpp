#pragma once

#include "layers/turns.hpp"

namespace stowage::layers {

/// A rank's place in a pipeline.
struct PipelinePlace {
  int stage = 0;
  int stages = 1;
};

/// One microbatch forward, one backward (1F1B, arXiv 2104.04473): stage s of p goes p - 1 - s
/// microbatches ahead, then forward and backward alternate, so at most p - s microbatches are in
/// flight. Backward follows in the order of forward, so gradients are added as on one rank.
///
/// All of it lies in one section: a microbatch has memory of its own from its forward to its
/// backward, which a plan gives to a later one.
Turns train_in_pipeline(PipelinePlace place, int microbatches);
/// Forward alone.
Turns evaluate_in_pipeline(PipelinePlace place, int microbatches);

/// The passes of a stage with what it exchanges between them: behind each what it gives away,
/// together with what the next one needs, so that neighbours that do the opposite meet in one
/// exchange.
std::vector<Turn> with_exchanges(PipelinePlace place, const std::vector<Turn>& passes);

}  // namespace stowage::layers
