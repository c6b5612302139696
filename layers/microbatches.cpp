#include "layers/microbatches.hpp"

#include "kernels/documents/document_index.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/microbatch/take_row.hpp"

namespace stowage::layers {

using execution::Dtype;
using Views = std::span<const execution::View>;

namespace {

std::vector<std::int64_t> stacked(const StepShape& shape, std::int64_t width) {
  if (shape.microbatches == 1) return {width};
  return {shape.microbatches, width};
}

/// The row of a stacked input that belongs to the microbatch at work.
Tensor take(Recorder& recorder, const char* name, Tensor stack, Tensor index, std::int64_t width) {
  const Tensor row = recorder.scratch(name, Dtype::int32, {width});
  recorder.compute(name, kernels::take_row_cost(width), {read(stack), read(index), write(row)},
                   [](execution::Queue& q, Views v) { kernels::take_row(q, v[0], v[1], v[2]); });
  return row;
}

void index_documents(Recorder& recorder, const StepShape& shape) {
  const Batch& batch = recorder.batch();
  recorder.compute("document_index", kernels::document_index_cost(shape.tokens, shape.capacity),
                   {read(batch.cu_seqlens), write(batch.seq_idx)},
                   [](execution::Queue& q, Views v) { kernels::document_index(q, v[0], v[1]); });
}

}  // namespace

StackedInputs add_inputs(Program& program, const StepShape& shape) {
  return {program.input("tokens", Dtype::int32, stacked(shape, shape.tokens)),
          program.input("targets", Dtype::int32, stacked(shape, shape.tokens)),
          program.input("cu_seqlens", Dtype::int32, stacked(shape, shape.capacity + 1))};
}

void record_microbatches(Program& program, Precision precision, const StepShape& shape,
                         const StackedInputs& inputs, Tensor loss_scale,
                         const std::function<void(Recorder& recorder, bool last)>& record) {
  Tensor index;
  if (shape.microbatches > 1) {
    Recorder recorder(program, precision, {});
    recorder.set_prefix("inputs");
    index = recorder.scratch("microbatch", Dtype::int32, {1});
    recorder.compute("microbatch", {}, {write(index)},
                     [](execution::Queue& q, Views v) { kernels::fill(q, v[0], 0); });
  }
  const auto section = [&](const char* name, int repeat, int slot, bool last) {
    program.begin_section(name, repeat);
    const auto scope = program.enter("microbatch", -1, slot);
    Batch batch;
    batch.tokens_count = shape.tokens;
    batch.attention_pairs = shape.attention_pairs();
    batch.loss_scale = loss_scale;
    batch.slot = slot;
    batch.accumulate = slot > 0;
    Recorder inputs_recorder(program, precision, batch);
    inputs_recorder.set_prefix("inputs");
    if (index) {
      batch.tokens = take(inputs_recorder, "tokens", inputs.tokens, index, shape.tokens);
      batch.targets = take(inputs_recorder, "targets", inputs.targets, index, shape.tokens);
      batch.cu_seqlens =
          take(inputs_recorder, "cu_seqlens", inputs.cu_seqlens, index, shape.capacity + 1);
      inputs_recorder.compute("advance", {}, {update(index)}, [](execution::Queue& q, Views v) {
        kernels::advance_index(q, v[0]);
      });
    } else {
      batch.tokens = inputs.tokens;
      batch.targets = inputs.targets;
      batch.cu_seqlens = inputs.cu_seqlens;
    }
    batch.seq_idx = inputs_recorder.scratch("seq_idx", Dtype::int32, {shape.tokens});
    Recorder recorder(program, precision, batch);
    recorder.set_prefix("inputs");
    index_documents(recorder, shape);
    record(recorder, last);
  };
  const int count = shape.microbatches;
  section("first", 1, 0, count == 1);
  if (count > 2) section("body", count - 2, 1, false);
  if (count > 1) section("last", 1, 2, true);
}

}  // namespace stowage::layers
