#include "layers/stage.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "execution/error.hpp"
#include "kernels/documents/document_index.hpp"

namespace stowage::layers {

using execution::Dtype;
using Views = std::span<const execution::View>;

namespace {

/// The inputs of one microbatch in flight.
Batch add_batch(Program& program, Precision precision, const StepShape& shape, Tensor loss_scale,
                int slot) {
  const auto input = [&](const char* name, std::int64_t width) {
    return program.input(fmt::format("{}/{}", name, slot), Dtype::int32, {width});
  };
  Batch batch;
  batch.tokens_count = shape.tokens;
  batch.attention_pairs = shape.attention_pairs();
  batch.tokens = input("tokens", shape.tokens);
  batch.targets = input("targets", shape.tokens);
  batch.cu_seqlens = input("cu_seqlens", shape.capacity + 1);
  batch.loss_scale = loss_scale;
  batch.slot = slot;
  batch.accumulate = slot > 0;
  Recorder recorder(program, precision, batch);
  recorder.set_prefix("inputs");
  batch.seq_idx = recorder.scratch("seq_idx", Dtype::int32, {shape.tokens});
  recorder.compute("document_index", kernels::document_index_cost(shape.tokens, shape.capacity),
                   {read(batch.cu_seqlens), write(batch.seq_idx)},
                   [](execution::Queue& q, Views v) { kernels::document_index(q, v[0], v[1]); });
  return batch;
}

}  // namespace

std::string stage_pattern(const std::string& pattern, int stage, int stages) {
  const auto cuts = std::count(pattern.begin(), pattern.end(), '|');
  if (cuts > 0) {
    if (cuts + 1 != stages)
      execution::throw_usage("model.pattern = \"{}\": it has {} stages, {} are asked for", pattern,
                             cuts + 1, stages);
    std::size_t begin = 0;
    for (int s = 0; s < stage; ++s) begin = pattern.find('|', begin) + 1;
    return pattern.substr(begin, pattern.find('|', begin) - begin);
  }
  const int layers = static_cast<int>(pattern.size());
  if (layers < stages)
    execution::throw_usage("model.pattern = \"{}\": {} layers are too few for {} stages", pattern,
                           layers, stages);
  const int share = layers / stages;
  const int more = layers % stages;
  const int begin = stage * share + std::min(stage, more);
  return pattern.substr(static_cast<std::size_t>(begin),
                        static_cast<std::size_t>(share + (stage < more ? 1 : 0)));
}

Program record_stage(Model& model, const StepShape& shape, int in_flight) {
  Program program("stage");
  const Precision precision = model.precision();
  program.begin_section("full");
  const Tensor loss_scale = program.input("loss_scale", precision.accumulation(), {1});
  std::vector<Batch> batches;
  for (int slot = 0; slot < in_flight; ++slot) {
    const auto scope = program.enter("microbatch", -1, slot);
    batches.push_back(add_batch(program, precision, shape, loss_scale, slot));
    Recorder recorder(program, precision, batches.back());
    model.forward(recorder);
  }
  for (int slot = 0; slot < in_flight; ++slot) {
    const auto scope = program.enter("microbatch", -1, slot, true);
    Recorder recorder(program, precision, batches[static_cast<std::size_t>(slot)]);
    model.backward(recorder, [](std::span<const Parameter>) {});
  }
  program.finish();
  return program;
}

}  // namespace stowage::layers
