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
  const double depths = model.mtp.depths, width = static_cast<double>(model.width);
  const double joined = depths * (head + 4 * work.tokens * width * width);
  sum.model += joined;
  sum.megatron_compat += joined;
  for (const char letter : model.mtp.pattern) {
    const StepFlops one = kind_of(model, letter).flops(model, work);
    sum.model += depths * one.model;
    sum.megatron_compat += depths * one.megatron_compat;
  }
  constexpr double kTraining = 3;  // forward, and two products for each of its products
  return {kTraining * sum.model, kTraining * sum.megatron_compat};
}

}  // namespace stowage::layers
