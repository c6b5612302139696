#include "layers/step/decode.hpp"

#include "layers/mixers/experts.hpp"

namespace stowage::layers {

using execution::Dtype;

DecodeProgram record_decode(const Model& model, const DecodeShape& shape,
                            const execution::PersistentLayout& layout) {
  DecodeProgram step;
  step.shape = shape;
  step.program = Program("decode", &layout);
  Program& program = step.program;
  program.begin_section("prologue");
  step.tokens = program.input("tokens", Dtype::int32, {shape.sequences});
  step.positions = program.input("positions", Dtype::int32, {shape.sequences});
  step.cu_seqlens = program.input("cu_seqlens", Dtype::int32, {2});
  step.logits = program.output(kLogits, model.precision().accumulation(),
                               {shape.sequences, model.config().vocabulary});
  program.begin_section("token");
  Batch batch;
  batch.sequence_tokens = batch.tokens_count = batch.rows_count = shape.sequences;
  batch.expert_capacity = expert_capacity(model.config(), model.ranks(), shape.sequences, 0);
  batch.tokens = step.tokens;
  batch.positions = step.positions;
  batch.cu_seqlens = step.cu_seqlens;
  batch.decode = shape;
  Handles handles;
  Recorder recorder(program, model.precision(), batch, handles);
  {
    const auto scope = program.enter("microbatch", -1, batch.slot);
    model.decode(recorder);
  }
  program.finish();
  return step;
}

}  // namespace stowage::layers
