#include "layers/model/model.hpp"

#include <fmt/core.h>

#include "execution/error.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace stowage::layers {

namespace {

/// The stages of this rank of a pipeline.
std::vector<Stage> own_stages(const ModelConfig& config, const parallel::Ranks& ranks) {
  const int sharers = ranks.shape[parallel::Axis::pipeline];
  if (sharers == 1) return divide(config.pattern, 1);
  const std::vector<Stage> all = divide(config.pattern, sharers * config.virtual_stages);
  std::vector<Stage> own;
  for (const Stage& stage : all)
    if (stage.index % sharers == ranks.coordinates[parallel::Axis::pipeline]) own.push_back(stage);
  return own;
}

}  // namespace

Model::Model(const ModelConfig& config, Precision precision, double aux_scale,
             const parallel::Ranks& ranks)
    : config_(config),
      precision_(precision),
      ranks_(ranks),
      stages_(own_stages(config, ranks)),
      embedding_(config, ranks),
      head_(config, ranks, embedding_.weight(), "final_norm.weight", config.mtp.depths > 0) {
  for (const char letter : config.pattern)
    if (letter != '|') {
      const int index = static_cast<int>(layers_.size());
      layers_.emplace_back(
          kind_of(config, letter),
          MixerPlace{config, ranks, fmt::format("layers.{}", index), index, aux_scale});
    }
  if (config.mtp.depths > 0) mtp_.emplace(config, ranks, embedding_, aux_scale);
}

std::vector<Parameter> Model::parameters(const std::vector<Stage>& stages) const {
  std::vector<Parameter> all;
  if (stages.back().head && mtp_) all = mtp_->parameters();
  if (stages.back().head)
    for (Parameter& p : head_.parameters()) all.push_back(std::move(p));
  for (std::size_t s = stages.size(); s-- > 0;)
    for (int i = stages[s].end; i-- > stages[s].begin;)
      for (Parameter& p : layers_[i].parameters()) all.push_back(std::move(p));
  if (stages.front().embedding || (stages.back().head && head_has_embedding()))
    all.push_back(embedding());
  return all;
}

std::vector<execution::TensorInfo> Model::states(const std::vector<Stage>& stages) const {
  std::vector<execution::TensorInfo> all;
  for (const Stage& stage : stages)
    for (const Layer& layer : layers(stage))
      for (execution::TensorInfo& info : layer.mixer().states(precision_))
        all.push_back(std::move(info));
  if (stages.back().head && mtp_)
    for (execution::TensorInfo& info : mtp_->states(precision_)) all.push_back(std::move(info));
  return all;
}

std::vector<execution::TensorInfo> Model::sequence_states(const DecodeShape& shape) const {
  std::vector<execution::TensorInfo> all;
  for (const Layer& layer : layers_)
    for (execution::TensorInfo& info : layer.mixer().sequence_states(precision_, shape))
      all.push_back(std::move(info));
  all.push_back(execution::one_buffer(kLogits, precision_.accumulation(),
                                      {shape.sequences, config_.vocabulary},
                                      execution::Lifetime::sequence_state));
  return all;
}

int Model::part_of(const std::string& parameter) const {
  constexpr std::string_view kLayer = "layers.";
  if (parameter == embedding().name) return -1;
  return parameter.starts_with(kLayer) ? std::stoi(parameter.substr(kLayer.size()))
                                       : config_.layers();
}

bool Model::shares_embedding() const {
  return head_has_embedding() && has_embedding() != has_head();
}

std::span<const Layer> Model::layers(const Stage& stage) const {
  return std::span(layers_).subspan(static_cast<std::size_t>(stage.begin),
                                    static_cast<std::size_t>(stage.end - stage.begin));
}

std::string_view Model::input_module(const Stage& stage) const {
  const std::span<const Layer> own = layers(stage);
  return own.empty() ? std::string_view("") : own.front().kind().norm_module;
}

Stream Model::trunk(Recorder& recorder, const Stage& stage, Tensor in) const {
  Stream stream{stage.embedding ? embedding_.forward(recorder, input_module(stage)) : in, {}};
  for (const Layer& layer : layers(stage)) stream = layer.forward(recorder, stream);
  return stream;
}

Tensor Model::hand_on(Recorder& recorder, const Stage& stage, Stream stream) const {
  recorder.set_prefix(stage_prefix(stage));
  const Tensor out = recorder.scratch("out", {recorder.rows(), config_.width});
  recorder.compute("sum", kernels::Add{recorder.buffer(out)},
                   {.a = stream.x, .b = stream.delta, .out = out});
  return out;
}

Tensor Model::forward(Recorder& recorder, const Stage& stage, Tensor in) const {
  const Stream stream = trunk(recorder, stage, in);
  if (!stage.head) return hand_on(recorder, stage, stream);
  const Tensor losses = head_.forward(recorder, stream);
  if (mtp_) mtp_->forward(recorder, head_.hidden(recorder));
  return losses;
}

Tensor Model::evaluate(Recorder& recorder, const Stage& stage, Tensor in) const {
  const Stream stream = trunk(recorder, stage, in);
  if (!stage.head) return hand_on(recorder, stage, stream);
  const Tensor losses = head_.evaluate(recorder, stream);
  if (mtp_ && !recorder.batch().further.empty()) mtp_->evaluate(recorder, head_.hidden(recorder));
  return losses;
}

void Model::decode(Recorder& recorder) const {
  STOWAGE_ASSERT(ranks_.size() == 1, "{} ranks share the model", ranks_.size());
  Stream stream{embedding_.forward(recorder, input_module(whole())), {}};
  for (const Layer& layer : layers_) stream = layer.decode(recorder, stream);
  head_.decode(recorder, stream);
}

Tensor Model::backward(Recorder& recorder, const Stage& stage, Tensor dout,
                       const Finished& finished, const Stored& stored) const {
  const bool later = recorder.batch().weights_later;
  Tensor dsum = dout;
  if (stage.head) {
    const Tensor dhidden =
        mtp_ ? mtp_->backward(recorder, config_.tied_embeddings, finished) : Tensor{};
    dsum = head_.backward(recorder, dhidden);
    if (stored) stored(head_.parameters());
    finished(head_.parameters(),
             stage.end > stage.begin && backward_begins_with_exchange(stage.end - 1));
  }
  for (int i = stage.end; i-- > stage.begin;) {
    const Layer& layer = layers_[static_cast<std::size_t>(i)];
    dsum = layer.backward(recorder, dsum);
    if (stored) stored(later ? layer.parameters(recorder, false) : layer.parameters());
    if (!later)
      finished(layer.parameters(), i > stage.begin && backward_begins_with_exchange(i - 1));
  }
  if (!stage.embedding) return dsum;
  // The head of this stage, if the weight is its too, has stored its gradient already.
  embedding_.backward(recorder, dsum,
                      recorder.batch().accumulate || (stage.head && head_has_embedding()));
  if (stored) stored({&embedding(), 1});
  if (!shares_embedding()) finished({&embedding(), 1}, false);
  return {};
}

void Model::backward_weights(Recorder& recorder, const Stage& stage, const Finished& finished,
                             const Stored& stored) const {
  if (stage.head && mtp_) mtp_->backward_weights(recorder, finished);
  const std::span<const Layer> own = layers(stage);
  for (std::size_t i = own.size(); i-- > 0;) {
    const std::vector<Parameter> later =
        stored ? own[i].parameters(recorder, true) : std::vector<Parameter>{};
    own[i].backward_weights(recorder);
    if (stored) stored(later);
    finished(own[i].parameters(), false);
  }
}

bool Model::backward_begins_with_exchange(int layer) const {
  return layers_[static_cast<std::size_t>(layer)].kind().experts &&
         ranks_.group(parallel::Group::expert).size() > 1 &&
         ranks_.group(parallel::Group::tensor).size() == 1;
}

bool Model::shares_experts() const {
  return inputs::has_experts(config_.letters()) &&
         ranks_.group(parallel::Group::experts).size() > 1;
}

bool Model::has_router_losses() const {
  return inputs::has_experts(config_.letters()) &&
         (config_.moe.aux_coeff > 0 || config_.moe.z_coeff > 0);
}

std::vector<Tensor> Model::step_counts(Recorder& recorder) const {
  std::vector<Tensor> all;
  const auto zeros = [&](const Stage& next_to, const char* name, int begin, int end,
                         std::int64_t count = 0) {
    for (int i = begin; i < end; ++i) count += layers_[i].mixer().step_count_elements();
    if (count == 0) return;
    recorder.set_prefix(stage_prefix(next_to));
    all.push_back(recorder.scratch(name, recorder.accumulation(), {count}));
    recorder.clear(name, write(all.back()), kernels::fill_cost(count, recorder.accumulation()));
  };
  int next = 0;
  for (const Stage& stage : stages_) {
    zeros(stage, "counts_before", next, stage.begin);
    for (const Layer& layer : layers(stage))
      for (const Tensor count : layer.mixer().step_counts(recorder)) all.push_back(count);
    next = stage.end;
  }
  const bool elsewhere = mtp_ && !has_head();
  zeros(stages_.back(), "counts_behind", next, whole().end,
        elsewhere ? mtp_->step_count_elements() : 0);
  if (mtp_ && has_head())
    for (const Tensor count : mtp_->step_counts(recorder)) all.push_back(count);
  if (config_.moe.tells_load) recorder.kept_of_step<StepCounts>(*this).all = all;
  return all;
}

void Model::tell_router_load(Recorder& recorder) const {
  const std::vector<Tensor>& counts = recorder.kept_of_step<StepCounts>(*this).all;
  std::int64_t elements = 0;
  for (const Tensor count : counts) elements += recorder.buffer(count).elements();
  if (elements == 0) return;
  const Tensor load = recorder.program().output(
      kRouterLoad, recorder.accumulation(), {elements / config_.moe.experts, config_.moe.experts});
  recorder.set_prefix("step");
  std::int64_t at = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::int64_t end = at + recorder.buffer(counts[i]).elements();
    recorder.copy(kRouterLoad + std::to_string(i), read(counts[i]),
                  {load, Access::write, {at, end}});
    at = end;
  }
}

void Model::end_of_step(Recorder& recorder, Tensor step_ok) const {
  if (config_.moe.tells_load) tell_router_load(recorder);
  for (const Stage& stage : stages_)
    for (const Layer& layer : layers(stage)) {
      recorder.set_prefix(layer.prefix());
      layer.mixer().end_of_step(recorder, step_ok);
    }
  if (mtp_ && has_head()) mtp_->end_of_step(recorder, step_ok);
}

}  // namespace stowage::layers
