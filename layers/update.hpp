#pragma once

#include "layers/step.hpp"

namespace stowage::layers {

/// Records the global norm of all gradients; a norm that is not finite clears step_ok.
void record_norm(Recorder& recorder, const Model& model, Tensor grad_norm, Tensor step_ok);

/// Records clipping and AdamW over all parameters, and the count of good steps. Nothing is written
/// where step_ok is 0.
void record_update(Recorder& recorder, const Model& model, const OptimizerConfig& optimizer,
                   const TrainingProgram& step);

}  // namespace stowage::layers
