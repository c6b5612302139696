#include "layers/schedule/turns.hpp"

#include <fmt/core.h>

#include "execution/error.hpp"
#include "kernels/cross_entropy/loss_sum.hpp"
#include "kernels/documents/document_index.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/microbatch/take_row.hpp"
#include "layers/mixers/experts.hpp"
#include "layers/schedule/side_by_side.hpp"

namespace stowage::layers {

using execution::Dtype;
using Views = std::span<const execution::View>;

namespace {

/// The first microbatch stores what the others add to, and the last completes it; those between are
/// alike, so they are one section that repeats.
Turns in_turn(int microbatches, const std::function<std::vector<Turn>(Turn)>& turns_of) {
  Turns turns;
  turns.push_back({"first", 1, turns_of({.slot = 0, .last = microbatches == 1})});
  if (microbatches > 2)
    turns.push_back({"body", microbatches - 2, turns_of({.slot = 1, .accumulate = true})});
  if (microbatches > 1)
    turns.push_back({"last", 1, turns_of({.slot = 2, .accumulate = true, .last = true})});
  return turns;
}

Turn with_pass(Turn turn, Turn::Pass pass) {
  turn.pass = pass;
  return turn;
}

std::vector<std::int64_t> stacked(const StepShape& shape, std::int64_t width) {
  if (shape.microbatches == 1) return {width};
  return {shape.microbatches, width};
}

}  // namespace

Turns train_in_turn(int microbatches) {
  return in_turn(microbatches, [](const Turn& turn) {
    return std::vector{with_pass(turn, Turn::Pass::forward), with_pass(turn, Turn::Pass::backward)};
  });
}

Turns train_side_by_side(int microbatches) {
  std::vector<Turn> turns{{.pass = Turn::Pass::forward}};
  for (int i = 0; i < microbatches; ++i) {
    turns.push_back({.pass = Turn::Pass::backward,
                     .slot = i,
                     .accumulate = i > 0,
                     .last = i == microbatches - 1});
    if (i + 1 < microbatches)
      turns.push_back(
          {.pass = Turn::Pass::forward, .slot = i + 1, .accumulate = true, .beside = true});
  }
  return {{"side_by_side", 1, std::move(turns)}};
}

Turns evaluate_in_turn(int microbatches) {
  return in_turn(microbatches, [](const Turn& turn) {
    return std::vector{with_pass(turn, Turn::Pass::evaluate)};
  });
}

StackedInputs add_inputs(Program& program, const StepShape& shape, const Model& model) {
  StackedInputs inputs;
  const auto add = [&](const char* name, std::int64_t width) {
    return program.input(name, Dtype::int32, stacked(shape, width));
  };
  if (model.has_embedding()) inputs.tokens = add("tokens", shape.tokens);
  if (model.has_head()) inputs.targets = add("targets", shape.tokens);
  inputs.cu_seqlens = add("cu_seqlens", shape.capacity + 1);
  return inputs;
}

TurnRecorder::TurnRecorder(Program& program, const Model& model, Handles& handles, Options options)
    : program_(program), model_(model), handles_(handles), options_(options) {
  const parallel::Ranks& ranks = model_.ranks();
  const int shared_by =
      ranks.group(parallel::Group::tensor).size() * ranks.group(parallel::Group::context).size();
  if (options_.shape.tokens % shared_by != 0)
    execution::throw_usage("{} tokens of a microbatch do not divide among {} ranks that share rows",
                           options_.shape.tokens, shared_by);
  if (options_.shape.microbatches == 1) return;
  Recorder recorder(program_, model_.precision(), {}, handles_);
  recorder.set_prefix("inputs");
  index_ = recorder.scratch("microbatch", Dtype::int32, {1});
  recorder.compute("microbatch", {}, {write(index_)},
                   [](execution::Queue& q, Views v) { kernels::fill(q, v[0], 0); });
}

void TurnRecorder::record(const Turns& turns, const Model::Finished& finished,
                          const std::function<void()>& exchanged) {
  for (const TurnSection& section : turns) {
    program_.begin_section(section.name, section.repeat);
    record(section, finished, exchanged);
  }
}

void TurnRecorder::record(const TurnSection& section, const Model::Finished& finished,
                          const std::function<void()>& exchanged) {
  int before = -1;  // where the pass before begins, if it is no part of another
  for (const Turn& turn : section.turns) {
    const int begin = static_cast<int>(program_.ops().size());
    record(turn, finished, exchanged);
    if (turn.beside) {
      STOWAGE_ASSERT(before >= 0, "no pass for microbatch {} to go beside", turn.slot);
      put_side_by_side(program_, before, begin);
    }
    before = turn.beside ? -1 : begin;
  }
}

void TurnRecorder::record(const Turn& turn, const Model::Finished& finished,
                          const std::function<void()>& exchanged) {
  if (turn.pass == Turn::Pass::exchange) return exchange(turn.hops);
  const bool backward = turn.pass == Turn::Pass::backward || turn.pass == Turn::Pass::weights;
  const auto scope = program_.enter("microbatch", -1, turn.slot, backward);
  if (!backward && turn.chunk == 0) slots_[turn.slot] = next_batch(turn);
  Batch batch = slots_.at(turn.slot);
  batch.weights_later = turn.weights_later;
  Recorder recorder(program_, model_.precision(), batch, handles_);
  if (!backward) return forward(turn, recorder);
  const Model::Finished done = [&](std::span<const Parameter> parameters, bool exchange_follows) {
    if (turn.last && finished) finished(parameters, exchange_follows);
  };
  if (turn.last) recorder.behind_exchanges(exchanged);
  if (turn.pass == Turn::Pass::weights)
    return model_.backward_weights(recorder, stage(turn.chunk), done);
  Passing& passing = passing_[{turn.chunk, turn.slot}];
  passing.din = model_.backward(recorder, stage(turn.chunk), passing.dout, done);
}

void TurnRecorder::forward(const Turn& turn, Recorder& recorder) {
  Passing& passing = passing_[{turn.chunk, turn.slot}];
  const Stage& stage = this->stage(turn.chunk);
  const Tensor out = turn.pass == Turn::Pass::evaluate
                         ? model_.evaluate(recorder, stage, passing.in)
                         : model_.forward(recorder, stage, passing.in);
  if (stage.head) return sum_losses(recorder, out);
  passing.out = out;
}

void TurnRecorder::exchange(const std::vector<Hop>& hops) {
  std::vector<parallel::Message> messages;
  std::string name;
  for (const Hop& hop : hops) {
    const char* const what = hop.gradient ? "gradient" : "stream";
    messages.push_back({hop.peer,
                        hop.sends,
                        {passed(hop), {}},
                        fmt::format("{} of microbatch {} to stage {}", what, hop.slot,
                                    hop.destination(stage(hop.chunk).index))});
    name += fmt::format("{}{}_{}", name.empty() ? "" : "+", hop.sends ? "send" : "receive", what);
  }
  const parallel::RankGroup& group = model_.ranks().group(parallel::Group::pipeline);
  program_.append(group.exchange(
      program_,
      fmt::format("mb{}/{}/{}", hops.front().slot, stage_prefix(stage(hops.front().chunk)), name),
      messages));
}

Tensor TurnRecorder::passed(const Hop& hop) {
  Passing& passing = passing_[{hop.chunk, hop.slot}];
  if (hop.sends) return hop.gradient ? passing.din : passing.out;
  Recorder recorder(program_, model_.precision(), sizes({.slot = hop.slot}), handles_);
  recorder.set_prefix(stage_prefix(stage(hop.chunk)));
  const std::vector<std::int64_t> shape{recorder.rows(), model_.config().width};
  if (hop.gradient) return passing.dout = recorder.scratch("dout", shape);
  return passing.in = recorder.saved("in", shape, model_.input_module(stage(hop.chunk)));
}

/// A microbatch without its tensors.
Batch TurnRecorder::sizes(const Turn& turn) const {
  const StepShape& shape = options_.shape;
  Batch batch;
  const parallel::RankGroup& tensor = model_.ranks().group(parallel::Group::tensor);
  const parallel::RankGroup& context = model_.ranks().group(parallel::Group::context);
  batch.sequence_tokens = shape.tokens;
  batch.tokens_count = shape.tokens / context.size();
  batch.first_token = batch.tokens_count * context.rank();
  batch.rows_count = batch.tokens_count / tensor.size();
  batch.first_row = batch.rows_count * tensor.rank();
  batch.row_tokens.first = batch.first_token + batch.first_row;
  batch.attention_pairs = shape.attention_pairs();
  batch.expert_room =
      expert_room(model_.config(), model_.ranks(), shape.tokens, shape.expert_share);
  batch.loss_scale = options_.loss_scale;
  batch.slot = turn.slot;
  batch.accumulate = turn.accumulate;
  return batch;
}

Batch TurnRecorder::next_batch(const Turn& turn) {
  const StepShape& shape = options_.shape;
  Batch batch = sizes(turn);
  Recorder recorder(program_, model_.precision(), batch, handles_);
  recorder.set_prefix("inputs");
  const StackedInputs& inputs = options_.inputs;
  if (inputs.tokens) batch.tokens = take(recorder, "tokens", inputs.tokens, shape.tokens);
  if (inputs.targets) batch.targets = take(recorder, "targets", inputs.targets, shape.tokens);
  batch.cu_seqlens = take(recorder, "cu_seqlens", inputs.cu_seqlens, shape.capacity + 1);
  if (index_)
    recorder.compute("advance", {}, {update(index_)},
                     [](execution::Queue& q, Views v) { kernels::advance_index(q, v[0]); });
  batch.sequence_seq_idx = recorder.scratch("seq_idx", Dtype::int32, {shape.tokens});
  recorder.compute("document_index", kernels::document_index_cost(shape.tokens, shape.capacity),
                   {read(batch.cu_seqlens), write(batch.sequence_seq_idx)},
                   [](execution::Queue& q, Views v) { kernels::document_index(q, v[0], v[1]); });
  batch.seq_idx = own(recorder, "own_seq_idx", batch.sequence_seq_idx);
  if (batch.tokens) batch.tokens = own(recorder, "own_tokens", batch.tokens);
  if (batch.targets) batch.targets = own(recorder, "own_targets", batch.targets);
  return batch;
}

/// This rank's part of what all tokens of the sequences have.
Tensor TurnRecorder::own(Recorder& recorder, const char* name, Tensor all) const {
  const Batch& batch = recorder.batch();
  if (batch.tokens_count == batch.sequence_tokens) return all;
  const Tensor part = recorder.scratch(name, Dtype::int32, {batch.tokens_count});
  const auto bytes = static_cast<double>(batch.tokens_count) * sizeof(std::int32_t);
  const execution::Range range{batch.first_token, batch.first_token + batch.tokens_count};
  recorder.compute(name, {0, 2 * bytes}, {{all, Access::read, range}, write(part)},
                   [](execution::Queue& q, Views v) {
                     q.copy(v[1].as<void>(), v[0].as<void>(), v[0].buffer().bytes());
                   });
  return part;
}

/// The row of a stacked input that belongs to the microbatch at work.
Tensor TurnRecorder::take(Recorder& recorder, const char* name, Tensor stack,
                          std::int64_t width) const {
  if (!index_) return stack;
  const Tensor row = recorder.scratch(name, Dtype::int32, {width});
  recorder.compute(name, kernels::take_row_cost(width), {read(stack), read(index_), write(row)},
                   [](execution::Queue& q, Views v) { kernels::take_row(q, v[0], v[1], v[2]); });
  return row;
}

void TurnRecorder::sum_losses(Recorder& recorder, Tensor losses) const {
  recorder.set_prefix("loss");
  const bool accumulate = recorder.batch().accumulate;
  recorder.compute("sum", kernels::loss_sum_cost(recorder.rows(), recorder.accumulation()),
                   {{losses, Access::read, recorder.own_rows()},
                    {recorder.batch().targets, Access::read, recorder.own_rows()},
                    recorder.into(options_.loss)},
                   [accumulate](execution::Queue& q, Views v) {
                     kernels::loss_sum(q, v[0], v[1], v[2], accumulate);
                   });
}

}  // namespace stowage::layers
