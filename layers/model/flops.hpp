#pragma once

#include "layers/recording/config.hpp"

namespace stowage::layers {

/// What a training step's arithmetic is counted over, on all ranks.
struct StepWork {
  double tokens = 0;
  double pairs = 0;  ///< (query, key) pairs within documents: the sum of L (L + 1) / 2
};

/// Arithmetic of one training step by analytic formulas, for rates that others can compare with:
/// three times the forward, nothing that is computed again, no elementwise work.
struct StepFlops {
  /// Products with the true widths, attention over true pairs, the scan in its chunked form with
  /// causal halves, for chunks of 128 whatever the kernel uses.
  double model = 0;
  /// What Megatron-LM's training log counts (`num_floating_point_operations`): Mamba layers as if
  /// their inner width were twice the model's, the scan as a recurrence, no router.
  double megatron_compat = 0;
};

StepFlops step_flops(const ModelConfig& model, const StepWork& work);

}  // namespace stowage::layers
