#include "layers/step/decode.hpp"

#include "kernels/decode/likeliest_token.hpp"
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
  step.likeliest = program.output("likeliest", Dtype::int32, {shape.sequences});
  step.log_probabilities =
      program.output("log_probabilities", model.precision().accumulation(), {shape.sequences});
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
    const Tensor logits = recorder.sequence_state(model.sequence_states(shape).back());
    model.decode(recorder);
    recorder.compute(
        "likeliest",
        kernels::LikeliestToken{.rows = shape.sequences,
                                .vocabulary = model.config().vocabulary,
                                .storage = recorder.storage()},
        {.logits = logits, .tokens = step.likeliest, .log_probabilities = step.log_probabilities});
  }
  program.finish();
  return step;
}

}  // namespace stowage::layers
