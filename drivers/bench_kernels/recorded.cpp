#include "drivers/bench_kernels/recorded.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "execution/error.hpp"
#include "layers/mixers/experts.hpp"
#include "layers/mixers/kinds.hpp"

namespace stowage::drivers::bench {

using execution::Access;
using execution::Dtype;

namespace {

/// The mixer of a pattern of one letter. @throws Error (exit 2) for one that no case records
std::unique_ptr<layers::Mixer> make_mixer_of(const layers::ModelConfig& model,
                                             const parallel::Ranks& ranks,
                                             const std::string& name) {
  for (const layers::Kind* kind : {&layers::kinds::mamba, &layers::kinds::moe})
    if (model.pattern == std::string(1, kind->letter))
      return layers::make_mixer(*kind, {model, ranks, name, 0});
  execution::throw_usage("model.pattern = \"{}\": no layer that is recorded alone; allowed: {}, {}",
                         model.pattern, layers::kinds::mamba.letter, layers::kinds::moe.letter);
}

}  // namespace

RecordedMixer::RecordedMixer(const layers::ModelConfig& model, std::int64_t documents,
                             std::int64_t length, bool accumulate, execution::Dtype storage) {
  const std::string name = "layer";
  const parallel::Ranks ranks = parallel::planned_ranks({}, 0);
  const auto mixer = make_mixer_of(model, ranks, name);
  const std::int64_t n = documents * length;
  const auto input = [&](const char* of, std::int64_t count) {
    return program_.add(
        execution::one_buffer(of, Dtype::int32, {count}, execution::Lifetime::input));
  };
  layers::Batch batch;
  batch.sequence_tokens = batch.tokens_count = batch.rows_count = n;
  batch.expert_capacity = layers::expert_capacity(model, ranks, n, 0);
  batch.cu_seqlens = input("cu_seqlens", documents + 1);
  batch.seq_idx = batch.sequence_seq_idx = input("seq_idx", n);
  layers::Handles handles;
  std::size_t begin = 0, backward = 0;
  for (batch.slot = 0; batch.slot <= (accumulate ? 1 : 0); ++batch.slot) {
    batch.later = batch.accumulate = batch.slot > 0;
    layers::Recorder recorder(program_, {storage}, batch, handles);
    recorder.set_prefix(name);
    prefix_ = recorder.full_name("");
    const auto rows = [&](const char* of) { return recorder.scratch(of, {n, model.width}); };
    begin = program_.ops().size();
    (void)mixer->forward(recorder, rows("x"));
    backward = program_.ops().size();
    (void)mixer->backward(recorder, rows("dy"));
  }
  for (std::size_t i = begin; i < program_.ops().size(); ++i)
    ops.push_back({short_name(program_.ops()[i].name), i >= backward, program_.ops()[i]});
}

std::string RecordedMixer::short_name(const std::string& full) const {
  return full.starts_with(prefix_) ? full.substr(prefix_.size()) : full;
}

execution::Cost RecordedMixer::cost() const {
  return std::accumulate(
      ops.begin(), ops.end(), execution::Cost{},
      [](const execution::Cost& sum, const RecordedOp& one) { return sum + one.op.cost; });
}

std::vector<BoundOp> RecordedTensors::bind(RecordedMixer recording) {
  const RecordedMixer& recorded = recordings_.emplace_back(std::move(recording));
  std::vector<BoundOp> bound;
  for (const RecordedOp& each : recorded.ops) {
    BoundOp& one = bound.emplace_back(BoundOp{each, {}, {}});
    const std::vector<execution::Use>& uses = each.op.uses;
    for (const execution::Use& use : uses) one.addresses.push_back(operand(recorded, use).data());
    for (std::size_t i = 0; i < uses.size(); ++i)
      one.views.push_back({{&one.addresses[i], 1}, &recorded.info(uses[i].tensor)});
  }
  return bound;
}

/// What is read first is an input.
Operand& RecordedTensors::operand(const RecordedMixer& recording, const execution::Use& use) {
  STOWAGE_ASSERT(use.range == execution::Range{}, "a mixer of one rank uses a part of {}",
                 recording.name(use.tensor));
  const execution::BufferInfo& buffer = recording.info(use.tensor).buffers.front();
  const std::string name = recording.name(use.tensor);
  const auto known = std::ranges::find_if(tensors_, [&](const Operand& one) {
    return one.name() == name && one.shape() == buffer.shape;
  });
  if (known != tensors_.end()) return *known;
  const Role role = buffer.dtype == Dtype::uint8  ? Role::workspace
                    : use.access == Access::read  ? Role::input
                    : use.access == Access::write ? Role::output
                                                  : Role::update;
  return tensors_.emplace_back(processor_, name, role, buffer.dtype, buffer.shape);
}

Operand& RecordedTensors::operator[](const std::string& name) {
  const auto found = std::ranges::find(tensors_, name, &Operand::name);
  STOWAGE_ASSERT(found != tensors_.end(), "no recorded operator uses a tensor {}", name);
  return *found;
}

std::vector<Operand*> RecordedTensors::all() {
  std::vector<Operand*> found;
  for (Operand& one : tensors_) found.push_back(&one);
  return found;
}

std::vector<std::int32_t> RecordedTensors::integers(const std::string& name) {
  const std::vector<std::byte> bytes = (*this)[name].download();
  std::vector<std::int32_t> values(bytes.size() / sizeof(std::int32_t));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace stowage::drivers::bench
