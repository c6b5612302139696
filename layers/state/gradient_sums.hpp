#pragma once

#include <span>

#include "execution/persistent.hpp"
#include "layers/recording/recorder.hpp"
#include "parallel/groups/sum_tree.hpp"

namespace stowage::layers {

/// Gradients that are added up in bf16: each microbatch makes them in the type of sums and adds
/// them to those before, stochastically rounded.
class GradientSums {
 public:
  /// Whether a layout has any.
  static bool in(const execution::PersistentLayout& layout, Precision precision,
                 const Parameter& parameter);

  /// @param layout outlives this
  GradientSums(const execution::PersistentLayout& layout, std::uint64_t seed)
      : layout_(layout), seed_(seed) {}

  /// Called behind the ops that make a microbatch's gradients of some parameters.
  void add(Recorder& recorder, std::span<const Parameter> parameters,
           const parallel::Leaf& microbatch) const;

 private:
  const execution::PersistentLayout& layout_;
  std::uint64_t seed_;
};

}  // namespace stowage::layers
