#pragma once

#include "layers/recording/kind.hpp"

namespace stowage::layers {

/// Arithmetic of one training step: three times the forward.
StepFlops step_flops(const ModelConfig& model, const StepWork& work);

}  // namespace stowage::layers
