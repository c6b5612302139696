#include "layers/step/between_steps.hpp"

#include "layers/step/ema.hpp"

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

BetweenSteps record_ema_exchange(const Model& model, const OptimizerConfig& optimizer,
                                 const execution::PersistentLayout& layout,
                                 const Sharing& sharing) {
  return recorded("exchange_ema", model, layout, [&](Recorder& recorder) {
    record_exchange(recorder, model, optimizer, layout, sharing);
  });
}

}  // namespace stowage::layers
