#pragma once

#include <vector>

#include "inputs/deck/layer_kinds.hpp"
#include "inputs/deck/section.hpp"
#include "layers/recording/config.hpp"

namespace stowage::layers {

/// What a training step's arithmetic is counted over, on all ranks.
struct StepWork {
  double tokens = 0;
  double pairs = 0;  ///< (query, key) pairs within documents: the sum of L (L + 1) / 2
};

/// Arithmetic by analytic formulas, for rates that others can compare with: nothing that is
/// computed again, no elementwise work.
struct StepFlops {
  /// Products with the true widths, attention over true pairs, the scan in its chunked form with
  /// causal halves, for chunks of 128 whatever the kernel uses.
  double model = 0;
  /// What Megatron-LM's training log counts (`num_floating_point_operations`): Mamba layers as if
  /// their inner width were twice the model's, the scan as a recurrence, no router.
  double megatron_compat = 0;
};

/// What layers know of a kind of layer besides its mixer.
struct KindFunctions {
  StepFlops (*flops)(const ModelConfig&, const StepWork&);  ///< of forward
  // Of a kind with keys.
  void (*rows)(std::vector<inputs::Row<ModelConfig>>&) = nullptr;    ///< appends theirs
  void (*check)(const ModelConfig&, const inputs::Deck&) = nullptr;  ///< them together
  void (*slim)(ModelConfig&) = nullptr;  ///< as narrow as shows every path, for finite differences
};

/// A kind of layer, said once: a row beside its mixer (layers/mixers/kinds.hpp lists them).
struct Kind : inputs::LayerKind, KindFunctions {};

/// All kinds, in the order of help and messages.
const std::vector<const Kind*>& all_kinds();

/// The kind of a letter of the pattern. @throws Error (exit 2) for one that is none's
const Kind& kind_of(const ModelConfig& model, char letter);

/// `rows` of the member of ModelConfig that has a kind's sizes.
template <auto part>
void append_rows(std::vector<inputs::Row<ModelConfig>>& all) {
  inputs::append(all, part);
}

}  // namespace stowage::layers
