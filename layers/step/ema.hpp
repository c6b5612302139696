#pragma once

#include "layers/step/update.hpp"

namespace stowage::layers {

/// Appends the average's step on what this rank holds, behind the optimizer's; nothing if the
/// layout has no averages. The average of a frozen parameter is left as it is.
void record_ema(Recorder& recorder, const Model& model, const OptimizerConfig& config,
                const execution::PersistentLayout& layout, const Sharing& sharing, Tensor step_ok);

/// Appends the exchange of weights and averages (between_steps.hpp).
void record_exchange(Recorder& recorder, const Model& model, const OptimizerConfig& config,
                     const execution::PersistentLayout& layout, const Sharing& sharing);

}  // namespace stowage::layers
