#include "layers/model/flops.hpp"

namespace stowage::layers {

StepFlops step_flops(const ModelConfig& model, const StepWork& work) {
  const double head =
      2 * work.tokens * static_cast<double>(model.width) * static_cast<double>(model.vocabulary);
  StepFlops sum{head, head};
  for (const char letter : model.pattern) {
    if (letter == '|') continue;
    const StepFlops one = kind_of(model, letter).flops(model, work);
    sum.model += one.model;
    sum.megatron_compat += one.megatron_compat;
  }
  constexpr double kTraining = 3;  // forward, and two products for each of its products
  return {kTraining * sum.model, kTraining * sum.megatron_compat};
}

}  // namespace stowage::layers
