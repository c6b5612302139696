#pragma once

#include <span>
#include <string_view>

namespace stowage::layers {

struct ParameterUpdate;  // layers/step/update.hpp

/// A rule by which gradients change parameters, said once. What outlives a step, its digest, its
/// checkpoints and what they take follow from it.
struct Optimizer {
  std::string_view name;  ///< of its op
  /// Beside a master, of each parameter's shape and the type of sums; from zero on. At least one:
  /// "adam_m" stands for "adam_m/embedding.weight" and so on.
  std::span<const std::string_view> states;
  void (*record)(const ParameterUpdate& update);  ///< appends its op
};

/// AdamW (Loshchilov and Hutter, arXiv 1711.05101).
extern const Optimizer kAdamw;

}  // namespace stowage::layers
