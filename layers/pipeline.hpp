#pragma once

#include "layers/turns.hpp"

namespace stowage::layers {

/// A rank's place in a pipeline.
struct PipelinePlace {
  int stage = 0;
  int stages = 1;
};

/// What a stage does with the microbatches of a training step. Backward follows in the order of
/// forward, and so do the weights' gradients, so they are added as on one rank.
///
/// 1F1B (arXiv 2104.04473): stage s of p goes p - 1 - s microbatches ahead, then forward and
/// backward alternate, so at most p - s microbatches are in flight.
///
/// Zero bubble (ZB-H1 of arXiv 2401.10241): backward alone hands gradients on, and the products
/// that make the weights' gradients come s backwards later, in the time that 1F1B waits at the end;
/// so p microbatches at most are not done with, on any stage.
///
/// All of it lies in one section: a microbatch has memory of its own from its forward to its last
/// pass, which a plan gives to a later one.
Turns train_in_pipeline(PipelinePlace place, int microbatches, PipelineSchedule schedule);
/// Forward alone.
Turns evaluate_in_pipeline(PipelinePlace place, int microbatches);

/// The passes of a stage with what it exchanges between them: behind each what it gives away,
/// together with what the next one needs, so that neighbours that do the opposite meet in one
/// exchange.
std::vector<Turn> with_exchanges(PipelinePlace place, const std::vector<Turn>& passes);

}  // namespace stowage::layers
