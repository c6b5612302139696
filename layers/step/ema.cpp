#include "layers/step/ema.hpp"

#include "kernels/optimizer/ema.hpp"
#include "layers/state/state.hpp"
#include "layers/step/parameter_factors.hpp"

namespace stowage::layers {
namespace {

/// What this rank holds of all averages, each the one state of its parameter.
ParameterUpdate averaged(Recorder& recorder, const Model& model, const OptimizerConfig& config,
                         const execution::PersistentLayout& layout, const Sharing& sharing) {
  ParameterUpdate update{
      std::string(kEma), recorder, config, {}, {}, {}, {}, false, model, layout, sharing};
  const auto state = [&](const std::string& name) {
    return SomeRows{recorder.program().add(layout.info(name))};
  };
  for (const Parameter& p : model.parameters()) {
    const std::string ema = state_name(kEma, p.name), master = master_name(p.name);
    if (!layout.is_part(ema) || factor_of(p.name, config.lr_factors, 1) == 0) continue;
    const execution::Range held = layout.held(ema);
    if (held.begin == held.end) continue;
    ParameterUpdate::One one;
    one.name = p.name;
    one.parameter = {recorder.parameter(p), held};
    update.has_master = layout.is_part(master);
    if (update.has_master) one.master = state(master);
    one.states = {state(ema)};
    one.elements = held.end - held.begin;
    update.parameters.push_back(one);
  }
  return update;
}

}  // namespace

void record_ema(Recorder& recorder, const Model& model, const OptimizerConfig& config,
                const execution::PersistentLayout& layout, const Sharing& sharing, Tensor step_ok) {
  for (const ParameterUpdate& window :
       averaged(recorder, model, config, layout, sharing).windows()) {
    kernels::Ema ema{.elements = {},
                     .storage = recorder.storage(),
                     .has_master = window.has_master,
                     .decay = config.ema_decay};
    kernels::Ema::Operands<Tensor> operands{.step_ok = step_ok, .tensors = {}};
    for (const ParameterUpdate::One& one : window.parameters) {
      ema.elements.push_back(one.elements);
      operands.tensors.push_back(
          {.weight = ema.has_master ? one.master : one.parameter, .ema = one.states.front()});
    }
    recorder.compute(window.name, ema, operands);
  }
}

void record_exchange(Recorder& recorder, const Model& model, const OptimizerConfig& config,
                     const execution::PersistentLayout& layout, const Sharing& sharing) {
  for (const ParameterUpdate& window :
       averaged(recorder, model, config, layout, sharing).windows()) {
    kernels::ExchangeEma exchange{
        .elements = {}, .storage = recorder.storage(), .has_master = window.has_master};
    kernels::ExchangeEma::Operands<Tensor> operands{.tensors = {}};
    for (const ParameterUpdate::One& one : window.parameters) {
      exchange.elements.push_back(one.elements);
      operands.tensors.push_back(
          {.parameter = one.parameter, .master = one.master, .ema = one.states.front()});
    }
    recorder.compute("exchange_" + window.name, exchange, operands);
  }
}

}  // namespace stowage::layers
