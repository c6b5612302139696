#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "layers/recording/parameters.hpp"

namespace stowage::layers {

struct OptimizerConfig;  // layers/step/step.hpp
struct ParameterUpdate;  // layers/step/update.hpp

/// A rule by which gradients change parameters, said once. What outlives a step, its digest, its
/// checkpoints and what they take follow from it.
struct Optimizer {
  std::string_view name;  ///< of its op
  /// Beside a master, of each parameter's shape and a type of StateFormat; from zero on. At least
  /// one, the first moment: "adam_m" stands for "adam_m/embedding.weight" and so on.
  std::span<const std::string_view> states;
  void (*record)(const ParameterUpdate& update);  ///< appends its op
  /// The rule of parameters that are no matrices (Parameter::projections); null: this one is.
  const Optimizer* otherwise = nullptr;
  /// It needs whole matrices: it gets all of its parameters at once, not some elements of them
  /// (ParameterUpdate::windows).
  bool whole_matrices = false;
  bool without_master = false;  ///< it takes states of a StateFormat that has no master
  /// Of a whole parameter, on all ranks of a stage together, beside the passes over its elements;
  /// null: none.
  double (*flops)(const Parameter& parameter, const OptimizerConfig& config) = nullptr;

  /// The rule of a parameter.
  const Optimizer& of(const Parameter& parameter) const {
    return otherwise != nullptr && parameter.projections.empty() ? *otherwise : *this;
  }
  /// It, and the other one.
  std::vector<const Optimizer*> rules() const {
    if (otherwise == nullptr) return {this};
    return {this, otherwise};
  }
  /// The states of all parameters.
  std::vector<std::string_view> all_states() const {
    std::vector<std::string_view> all;
    for (const Optimizer* rule : rules())
      all.insert(all.end(), rule->states.begin(), rule->states.end());
    return all;
  }
};

/// AdamW (Loshchilov and Hutter, arXiv 1711.05101).
extern const Optimizer kAdamw;
/// Muon (Jordan et al., https://kellerjordan.github.io/posts/muon) of matrices, AdamW of the
/// others.
extern const Optimizer kMuon;

/// All of them, in the order of OptimizerChoice::Rule. A key "optim.NAME_..." is read by the one of
/// that name alone.
inline constexpr std::array kOptimizers{&kAdamw, &kMuon};

/// What a deck chooses.
struct OptimizerChoice {
  enum class Rule : unsigned char { adamw, muon } rule = Rule::adamw;

  const Optimizer& row() const { return *kOptimizers[static_cast<std::size_t>(rule)]; }
};

}  // namespace stowage::layers
