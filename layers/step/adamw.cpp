#include "kernels/optimizer/adamw.hpp"

#include "execution/philox.hpp"
#include "layers/step/update.hpp"

namespace stowage::layers {
namespace {

constexpr std::string_view kName = "adamw";
constexpr std::string_view kStates[] = {"adam_m", "adam_v"};

void record(const ParameterUpdate& update) {
  const OptimizerConfig& config = update.config;
  const std::vector<SomeRows>& states = update.parameters.front().states;
  kernels::Adamw adamw{
      .pieces = {},
      .storage = update.recorder.storage(),
      .has_master = update.has_master,
      .clip = config.clip,
      .options = {config.beta1, config.beta2, config.epsilon},
      .m_type = update.recorder.buffer(states[0].whole).dtype,
      .v_type = update.recorder.buffer(states[1].whole).dtype,
      .seed = config.seed,
      .gradient_type = update.recorder.buffer(update.parameters.front().gradient.whole).dtype};
  kernels::Adamw::Operands<Tensor> operands{.schedule = update.schedule,
                                            .step = update.good_steps,
                                            .norm = update.grad_norm,
                                            .step_ok = update.step_ok,
                                            .tensors = {}};
  for (const ParameterUpdate::One& one : update.parameters) {
    adamw.pieces.push_back(
        {one.elements, one.decay, one.lr, execution::stream_of(one.name), one.index});
    operands.tensors.push_back({.parameter = one.parameter,
                                .master = one.master,
                                .gradient = one.gradient,
                                .m = one.states[0],
                                .v = one.states[1]});
  }
  // Stochastic rounding takes random bits, so that such updates have a rate of their own.
  const bool rounds = adamw.m_type == execution::Dtype::e4m3;
  const std::string number = update.name.substr(kName.size());
  update.recorder.compute(rounds ? "adamw_rounded" + number : update.name, adamw, operands);
}

}  // namespace

constinit const Optimizer kAdamw = {
    .name = kName, .states = kStates, .record = record, .without_master = true};

}  // namespace stowage::layers
