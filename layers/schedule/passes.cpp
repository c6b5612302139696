#include "layers/schedule/passes.hpp"

#include <fmt/core.h>

#include "execution/error.hpp"
#include "kernels/cross_entropy/loss_sum.hpp"
#include "kernels/cross_entropy/source_losses.hpp"
#include "kernels/documents/document_index.hpp"
#include "kernels/documents/later_tokens.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/microbatch/take_row.hpp"
#include "layers/mixers/experts.hpp"
#include "layers/schedule/side_by_side.hpp"

namespace stowage::layers {

using execution::Dtype;

namespace {

/// The first microbatch stores what the others add to, and the last completes it; those between are
/// alike, so they are one section that repeats.
/// @param leaf microbatches of which that is so; 1: all of them
RankPasses one_by_one(int microbatches, int leaf,
                      const std::function<std::vector<Pass>(Pass)>& passes_of) {
  RankPasses passes;
  const int leaves = leaf == 1 ? 1 : microbatches / leaf, of_leaf = microbatches / leaves;
  for (int i = 0, slot = 0; i < leaves; ++i) {
    const bool later = i > 0, last = i + 1 == leaves;
    const auto name = [&](const char* part) {
      return leaves == 1 ? part : fmt::format("leaf{}/{}", i, part);
    };
    passes.push_back(
        {name("first"), 1,
         passes_of({.slot = slot++, .accumulate = later, .last = last && of_leaf == 1})});
    if (of_leaf > 2)
      passes.push_back({name("body"), of_leaf - 2, passes_of({.slot = slot, .accumulate = true})});
    ++slot;
    if (of_leaf > 1)
      passes.push_back(
          {name("last"), 1, passes_of({.slot = slot, .accumulate = true, .last = last})});
    ++slot;
  }
  return passes;
}

Pass of_kind(Pass pass, Pass::Kind kind) {
  pass.kind = kind;
  return pass;
}

std::vector<std::int64_t> stacked(const StepShape& shape, std::int64_t width) {
  if (shape.microbatches == 1) return {width};
  return {shape.microbatches, width};
}

}  // namespace

RankPasses train_one_by_one(int microbatches, int leaf) {
  return one_by_one(microbatches, leaf, [](const Pass& pass) {
    return std::vector{of_kind(pass, Pass::Kind::forward), of_kind(pass, Pass::Kind::backward)};
  });
}

RankPasses train_side_by_side(int microbatches) {
  std::vector<Pass> passes{{.kind = Pass::Kind::forward}};
  for (int i = 0; i < microbatches; ++i) {
    passes.push_back({.kind = Pass::Kind::backward,
                      .slot = i,
                      .accumulate = i > 0,
                      .last = i == microbatches - 1});
    if (i + 1 < microbatches)
      passes.push_back(
          {.kind = Pass::Kind::forward, .slot = i + 1, .accumulate = true, .overlapping = true});
  }
  return {{"side_by_side", 1, std::move(passes)}};
}

RankPasses evaluate_one_by_one(int microbatches) {
  return one_by_one(microbatches, 1, [](const Pass& pass) {
    return std::vector{of_kind(pass, Pass::Kind::evaluate)};
  });
}

StackedInputs add_inputs(Program& program, const StepShape& shape, const Model& model) {
  StackedInputs inputs;
  const auto add = [&](const char* name, std::int64_t width) {
    return program.input(name, Dtype::int32, stacked(shape, width));
  };
  if (model.reads_tokens()) inputs.tokens = add("tokens", shape.tokens);
  if (model.has_head()) inputs.targets = add("targets", shape.tokens);
  inputs.cu_seqlens = add("cu_seqlens", shape.capacity + 1);
  if (shape.sources > 0 && model.has_head()) inputs.sources = add("sources", shape.tokens);
  return inputs;
}

PassRecorder::PassRecorder(Program& program, const Model& model, Handles& handles, Options options)
    : program_(program), model_(model), handles_(handles), options_(options) {
  const parallel::Ranks& ranks = model_.ranks();
  const int shared_by =
      ranks.group(parallel::Group::tensor).size() * ranks.group(parallel::Group::context).size();
  if (options_.shape.tokens % shared_by != 0)
    execution::throw_usage("{} tokens of a microbatch do not divide among {} ranks that share rows",
                           options_.shape.tokens, shared_by);
  Recorder recorder(program_, model_.precision(), {}, handles_);
  recorder.set_prefix("inputs");
  if (options_.loss_scale && model_.has_head() && model_.further_depths() > 0) {
    further_loss_scale_ = recorder.scratch("further_loss_scale", recorder.accumulation(), {1});
    recorder.compute("further_loss_scale",
                     kernels::Scale{recorder.buffer(further_loss_scale_),
                                    model_.config().mtp.loss_factor / model_.further_depths()},
                     {.x = options_.loss_scale, .y = further_loss_scale_});
  }
  if (options_.shape.microbatches == 1) return;
  index_ = recorder.scratch("microbatch", Dtype::int32, {1});
  recorder.clear("microbatch", write(index_));
}

void PassRecorder::record(const RankPasses& passes, const Model::Finished& finished,
                          const std::function<void()>& exchanged, const Stored& stored) {
  for (const PassSection& section : passes) {
    program_.begin_section(section.name, section.repeat);
    record(section, {finished, exchanged, stored});
  }
}

void PassRecorder::record(const PassSection& section, const Callbacks& callbacks) {
  int before = -1;  // where the pass before begins, if it is no part of another
  for (const Pass& pass : section.passes) {
    const int begin = static_cast<int>(program_.ops().size());
    record(pass, section.repeat, callbacks);
    if (pass.overlapping) {
      STOWAGE_ASSERT(before >= 0, "no pass for microbatch {} to go beside", pass.slot);
      put_side_by_side(program_, before, begin);
    }
    before = pass.overlapping ? -1 : begin;
  }
}

/// In a section that repeats it is known on the device alone. Weights' gradients are put off for
/// some microbatches only, in sections where each has a slot of its own.
parallel::Leaf PassRecorder::microbatch_of(const Pass& pass, int repeat) {
  std::int64_t& passed = passed_[{pass.kind, pass.chunk}];
  if (pass.kind == Pass::Kind::weights) passed = pass.slot;
  parallel::Leaf microbatch{.number = passed};
  passed += repeat;
  if (repeat > 1) microbatch.index = index_;
  microbatch.last = passed == options_.shape.microbatches;
  STOWAGE_ASSERT(repeat == 1 || !microbatch.last, "the last of {} microbatches is one that repeats",
                 passed);
  return microbatch;
}

std::optional<parallel::Leaf> PassRecorder::leaf_of(const parallel::Leaf& microbatch) const {
  if (options_.leaf == 1) return microbatch;
  if (microbatch.index || (microbatch.number + 1) % options_.leaf != 0) return std::nullopt;
  return parallel::Leaf{.number = microbatch.number / options_.leaf, .last = microbatch.last};
}

void PassRecorder::record(const Pass& pass, int repeat, const Callbacks& callbacks) {
  if (pass.kind == Pass::Kind::exchange) return exchange(pass.transfers);
  const bool backward = pass.kind == Pass::Kind::backward || pass.kind == Pass::Kind::weights;
  const auto scope = program_.enter("microbatch", -1, pass.slot, backward);
  if (!backward && pass.chunk == 0) slots_[pass.slot] = next_batch(pass);
  Batch batch = slots_.at(pass.slot);
  batch.weights_later = pass.weights_later;
  Recorder recorder(program_, model_.precision(), batch, handles_);
  const parallel::Leaf microbatch = microbatch_of(pass, repeat);
  if (backward)
    this->backward(pass, microbatch, callbacks, recorder);
  else
    forward(pass, microbatch, recorder);
}

void PassRecorder::backward(const Pass& pass, const parallel::Leaf& microbatch,
                            const Callbacks& callbacks, Recorder& recorder) {
  const Model::Finished done = [&](std::span<const Parameter> parameters, bool exchange_follows) {
    if (pass.last && callbacks.finished) callbacks.finished(parameters, exchange_follows);
  };
  Model::Stored stored;
  const std::optional<parallel::Leaf> leaf = leaf_of(microbatch);
  if (callbacks.stored && leaf)
    stored = [&](std::span<const Parameter> parameters) {
      callbacks.stored(recorder, parameters, *leaf);
    };
  if (pass.last) recorder.behind_exchanges(callbacks.exchanged);
  const Stage& stage = this->stage(pass.chunk);
  if (pass.kind == Pass::Kind::weights)
    return model_.backward_weights(recorder, stage, done, stored);
  Passing& passing = passing_[{pass.chunk, pass.slot}];
  passing.din = model_.backward(recorder, stage, passing.dout, done, stored);
  if (options_.values != nullptr)
    options_.values->add_layers(program_, stage.begin, stage.end, microbatch);
}

void PassRecorder::forward(const Pass& pass, const parallel::Leaf& microbatch, Recorder& recorder) {
  Passing& passing = passing_[{pass.chunk, pass.slot}];
  const Stage& stage = this->stage(pass.chunk);
  const Tensor out = pass.kind == Pass::Kind::evaluate
                         ? model_.evaluate(recorder, stage, passing.in)
                         : model_.forward(recorder, stage, passing.in);
  if (!stage.head) {
    passing.out = out;
    return;
  }
  sum_losses(recorder, out);
  if (options_.values != nullptr) options_.values->add_head(program_, microbatch);
}

void PassRecorder::exchange(const std::vector<StageTransfer>& transfers) {
  std::vector<parallel::Message> messages;
  std::string name;
  for (const StageTransfer& transfer : transfers) {
    const char* const what = transfer.gradient ? "gradient" : "stream";
    messages.push_back({transfer.peer,
                        transfer.sends,
                        {passed(transfer), {}},
                        fmt::format("{} of microbatch {} to stage {}", what, transfer.slot,
                                    transfer.destination(stage(transfer.chunk).index))});
    name +=
        fmt::format("{}{}_{}", name.empty() ? "" : "+", transfer.sends ? "send" : "receive", what);
  }
  const parallel::RankGroup& group = model_.ranks().group(parallel::Group::pipeline);
  program_.append(group.exchange(program_,
                                 fmt::format("mb{}/{}/{}", transfers.front().slot,
                                             stage_prefix(stage(transfers.front().chunk)), name),
                                 messages));
}

Tensor PassRecorder::passed(const StageTransfer& transfer) {
  Passing& passing = passing_[{transfer.chunk, transfer.slot}];
  if (transfer.sends) return transfer.gradient ? passing.din : passing.out;
  Recorder recorder(program_, model_.precision(), sizes({.slot = transfer.slot}), handles_);
  recorder.set_prefix(stage_prefix(stage(transfer.chunk)));
  const std::vector<std::int64_t> shape{recorder.rows(), model_.config().width};
  if (transfer.gradient) return passing.dout = recorder.scratch("dout", shape);
  return passing.in = recorder.saved("in", shape, model_.input_module(stage(transfer.chunk)));
}

/// A microbatch without its tensors.
Batch PassRecorder::sizes(const Pass& pass) const {
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
  batch.expert_capacity =
      expert_capacity(model_.config(), model_.ranks(), shape.tokens, shape.capacity_factor);
  batch.loss_scale = options_.loss_scale;
  batch.further_loss_scale = further_loss_scale_;
  batch.slot = pass.slot;
  batch.later = pass.accumulate;
  batch.own_gradients = options_.own_gradients;
  return batch;
}

Batch PassRecorder::next_batch(const Pass& pass) {
  const StepShape& shape = options_.shape;
  Batch batch = sizes(pass);
  const bool adds = options_.values == nullptr || passed_[{pass.kind, 0}] % options_.leaf > 0;
  batch.accumulate = pass.accumulate && adds && !batch.own_gradients;
  Recorder recorder(program_, model_.precision(), batch, handles_);
  recorder.set_prefix("inputs");
  const StackedInputs& inputs = options_.inputs;
  if (inputs.tokens) batch.tokens = take(recorder, "tokens", inputs.tokens, shape.tokens);
  if (inputs.targets) batch.targets = take(recorder, "targets", inputs.targets, shape.tokens);
  if (inputs.sources) batch.sources = take(recorder, "sources", inputs.sources, shape.tokens);
  batch.cu_seqlens = take(recorder, "cu_seqlens", inputs.cu_seqlens, shape.capacity + 1);
  if (index_) recorder.compute("advance", kernels::AdvanceIndex{}, {.index = index_});
  batch.sequence_seq_idx = recorder.scratch("seq_idx", Dtype::int32, {shape.tokens});
  recorder.compute("document_index", kernels::DocumentIndex{shape.tokens, shape.capacity},
                   {.cu_seqlens = batch.cu_seqlens, .seq_idx = batch.sequence_seq_idx});
  batch.seq_idx = own(recorder, "own_seq_idx", batch.sequence_seq_idx);
  add_further(recorder, batch);
  if (batch.tokens) batch.tokens = own(recorder, "own_tokens", batch.tokens);
  if (batch.targets) batch.targets = own(recorder, "own_targets", batch.targets);
  if (batch.sources) batch.sources = own(recorder, "own_sources", batch.sources);
  return batch;
}

/// What heads of further tokens take, if any are recorded.  @param batch of all tokens
void PassRecorder::add_further(Recorder& recorder, Batch& batch) const {
  if (!model_.has_head() || !(options_.loss_scale || program_.find(mtp_loss_name(1)))) return;
  const std::int64_t n = options_.shape.tokens;
  for (int depth = 1; depth <= model_.further_depths(); ++depth) {
    const auto later = [&](const char* of, Tensor ids) {
      const std::string name = fmt::format("{}_{}_later", of, depth);
      const Tensor all = recorder.scratch(name, Dtype::int32, {n});
      recorder.compute(name, kernels::LaterTokens{n, depth},
                       {.ids = ids, .seq_idx = batch.sequence_seq_idx, .later = all});
      return own(recorder, fmt::format("own_{}", name).c_str(), all);
    };
    batch.further.push_back({later("tokens", batch.tokens), later("targets", batch.targets)});
  }
}

/// This rank's part of what all tokens of the sequences have.
Tensor PassRecorder::own(Recorder& recorder, const char* name, Tensor all) const {
  const Batch& batch = recorder.batch();
  if (batch.tokens_count == batch.sequence_tokens) return all;
  const Tensor part = recorder.scratch(name, Dtype::int32, {batch.tokens_count});
  const auto bytes = static_cast<double>(batch.tokens_count) * sizeof(std::int32_t);
  const execution::Range range{batch.first_token, batch.first_token + batch.tokens_count};
  recorder.copy(name, {all, Access::read, range}, write(part), {0, 2 * bytes});
  return part;
}

/// The row of a stacked input that belongs to the microbatch at work.
Tensor PassRecorder::take(Recorder& recorder, const char* name, Tensor stack,
                          std::int64_t width) const {
  if (!index_) return stack;
  const Tensor row = recorder.scratch(name, Dtype::int32, {width});
  recorder.compute(name, kernels::TakeRow{options_.shape.microbatches, width},
                   {.stack = stack, .index = index_, .row = row});
  return row;
}

SomeRows PassRecorder::into(Tensor sums) const {
  return options_.values != nullptr ? options_.values->place(sums) : SomeRows{sums};
}

void PassRecorder::sum_losses(Recorder& recorder, Tensor losses) const {
  recorder.set_prefix("loss");
  const bool adds = options_.values == nullptr && recorder.batch().later;
  const auto own = [&](Tensor of_tokens) { return SomeRows{of_tokens, recorder.own_rows()}; };
  const auto sum = [&](const char* name, Tensor of_tokens, Tensor sums) {
    recorder.compute(
        name, kernels::LossSum{recorder.rows(), recorder.storage(), adds},
        {.losses = own(of_tokens), .targets = own(recorder.batch().targets), .sums = into(sums)});
  };
  sum("sum", losses, options_.loss);
  if (const Tensor sums = program_.find(kZLoss)) sum("z_sum", model_.z_losses(recorder), sums);
  if (const Tensor sums = program_.find(kSourceLosses))
    recorder.compute(
        "source_sums",
        kernels::SourceLosses{recorder.rows(), options_.shape.sources, recorder.storage(), adds},
        {.losses = own(losses), .of = own(recorder.batch().sources), .sums = into(sums)});
}

}  // namespace stowage::layers
