#pragma once

#include <functional>

#include "layers/recorder.hpp"
#include "layers/step.hpp"

namespace stowage::layers {

/// The stacked inputs of a step.
struct StackedInputs {
  Tensor tokens, targets, cu_seqlens;
};

/// Adds the stacked inputs to a program's prologue.
StackedInputs add_inputs(Program& program, const StepShape& shape);

/// Records the microbatches of a step as sections: the first, those between (once, repeated) and
/// the last. `record` is called for each with a recorder whose batch is set; `last` is true for the
/// one after which the gradients are complete.
void record_microbatches(Program& program, Precision precision, const StepShape& shape,
                         const StackedInputs& inputs, Tensor loss_scale,
                         const std::function<void(Recorder& recorder, bool last)>& record);

}  // namespace stowage::layers
