#include "layers/step/between_steps.hpp"

#include "layers/step/ema.hpp"
#include "layers/step/update.hpp"

namespace stowage::layers {
namespace {

/// A program of one section, of the ops that `record` appends.
template <class Record>
BetweenSteps recorded(std::string name, const Model& model,
                      const execution::PersistentLayout& layout, Record&& record) {
  BetweenSteps between;
  between.program = Program(std::move(name), &layout);
  between.program.begin_section("between");
  Handles handles;
  Recorder recorder(between.program, model.precision(), {}, handles);
  recorder.set_prefix("optimizer");
  record(recorder);
  between.program.finish();
  return between;
}

}  // namespace

BetweenSteps record_weight_norms(const Model& model, const Optimizer& rule,
                                 const OptimizerConfig& optimizer,
                                 const execution::PersistentLayout& layout,
                                 const Sharing& sharing) {
  OptimizerConfig all = optimizer;
  all.lr_factors.clear();  // none is frozen
  BetweenSteps between = recorded("weight_norms", model, layout, [&](Recorder& recorder) {
    Update(recorder, model, rule, all, layout, sharing, {}).record_weight_norms();
  });
  between.norms = between.program.find(kWeightNorms);
  return between;
}

BetweenSteps record_ema_exchange(const Model& model, const OptimizerConfig& optimizer,
                                 const execution::PersistentLayout& layout,
                                 const Sharing& sharing) {
  return recorded("exchange_ema", model, layout, [&](Recorder& recorder) {
    record_exchange(recorder, model, optimizer, layout, sharing);
  });
}

}  // namespace stowage::layers
