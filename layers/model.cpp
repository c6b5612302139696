#include "layers/model.hpp"

#include <fmt/core.h>

#include "execution/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/embedding/embedding.hpp"
#include "kernels/shards/shards.hpp"

namespace stowage::layers {

using Views = std::span<const execution::View>;

namespace {

std::unique_ptr<Mixer> make_mixer(const ModelConfig& config, const parallel::Ranks& ranks,
                                  char letter, int index, double aux_scale) {
  const std::string prefix = fmt::format("layers.{}", index);
  switch (letter) {
    case 'M':
      return make_mamba(config, ranks, prefix);
    case '*':
      return make_attention(config, ranks, prefix);
    case '-':
      return make_mlp(config, ranks, prefix);
    case 'E':
      return make_moe(config, ranks, prefix, aux_scale);
    default:
      execution::throw_usage("model.pattern = \"{}\": letter '{}' is not one of M * - E |",
                             config.pattern, letter);
  }
}

}  // namespace

Model::Model(const ModelConfig& config, Precision precision, double aux_scale,
             const parallel::Ranks& ranks)
    : config_(config),
      precision_(precision),
      ranks_(ranks),
      stage_(divide(config.pattern, ranks.shape[parallel::Axis::pipeline])[static_cast<std::size_t>(
          ranks.coordinates[parallel::Axis::pipeline])]),
      rows_(ranks.shared_group(parallel::Group::tensor)),
      embedding_{"embedding.weight",
                 {config.vocabulary, config.width},
                 Init::normal,
                 true,
                 "dense",
                 Partition(ranks.group(parallel::Group::tensor)).cut(0, {config.vocabulary})},
      head_(config, ranks, embedding_) {
  for (const char letter : config.pattern)
    if (letter != '|') {
      const int index = static_cast<int>(layers_.size());
      layers_.emplace_back(config, ranks, index,
                           make_mixer(config, ranks, letter, index, aux_scale));
    }
}

std::vector<Parameter> Model::parameters(const Stage& stage) const {
  std::vector<Parameter> all;
  if (stage.head) all = head_.parameters();
  for (int i = stage.end; i-- > stage.begin;)
    for (Parameter& p : layers_[static_cast<std::size_t>(i)].parameters())
      all.push_back(std::move(p));
  if (stage.embedding || (stage.head && config_.tied_embeddings)) all.push_back(embedding_);
  return all;
}

std::vector<execution::TensorInfo> Model::states(const Stage& stage) const {
  std::vector<execution::TensorInfo> all;
  for (int i = stage.begin; i < stage.end; ++i)
    for (execution::TensorInfo& info :
         layers_[static_cast<std::size_t>(i)].mixer().states(precision_))
      all.push_back(std::move(info));
  return all;
}

bool Model::shares_embedding() const {
  return config_.tied_embeddings && stage_.embedding != stage_.head;
}

std::span<const Layer> Model::layers() const {
  return std::span(layers_).subspan(static_cast<std::size_t>(stage_.begin),
                                    static_cast<std::size_t>(stage_.end - stage_.begin));
}

std::string_view Model::input_module() const {
  return layers().empty() ? std::string_view("") : layers().front().mixer().norm_module();
}

Tensor Model::local_tokens(Recorder& recorder, const char* name) const {
  const Tensor tokens = recorder.batch().tokens;
  if (rows_.size() == 1) return tokens;
  const std::int64_t rows = embedding_.local(0), first = rows_.rank() * rows;
  const Tensor local = recorder.scratch(name, execution::Dtype::int32, {recorder.tokens()});
  recorder.compute(name, kernels::localise_cost(recorder.tokens()), {read(tokens), write(local)},
                   [first, rows](execution::Queue& q, Views v) {
                     kernels::localise(q, v[0], first, rows, v[1]);
                   });
  return local;
}

/// A rank that has a token's row of the table gives it, the others give zeros.
Tensor Model::embed(Recorder& recorder) const {
  recorder.set_prefix("embedding");
  const std::int64_t n = recorder.tokens();
  const bool shared = rows_.size() > 1;
  const Tensor x = shared ? recorder.scratch("rows", {n, config_.width})
                          : recorder.saved("out", {n, config_.width}, input_module());
  recorder.compute(
      "forward", kernels::embedding_forward_cost(n, config_.width, recorder.storage()),
      {read(local_tokens(recorder, "local_tokens")), read(recorder.parameter(embedding_)),
       write(x)},
      [](execution::Queue& q, Views v) { kernels::embedding_forward(q, v[0], v[1], v[2]); });
  if (!shared) return x;
  const Tensor mine = recorder.saved("out", {recorder.rows(), config_.width}, input_module());
  rows_.reduce_to(recorder, "out", x, mine);
  return mine;
}

Stream Model::trunk(Recorder& recorder, Tensor in) const {
  Stream stream{stage_.embedding ? embed(recorder) : in, {}};
  for (const Layer& layer : layers()) stream = layer.forward(recorder, stream);
  return stream;
}

Tensor Model::hand_on(Recorder& recorder, Stream stream) const {
  recorder.set_prefix("stage");
  const Tensor out = recorder.scratch("out", {recorder.rows(), config_.width});
  recorder.compute("sum", kernels::add_cost(recorder.rows() * config_.width, recorder.storage()),
                   {read(stream.x), read(stream.delta), write(out)},
                   [](execution::Queue& q, Views v) { kernels::add(q, v[0], v[1], v[2]); });
  return out;
}

Tensor Model::forward(Recorder& recorder, Tensor in) const {
  const Stream stream = trunk(recorder, in);
  return stage_.head ? head_.forward(recorder, stream) : hand_on(recorder, stream);
}

Tensor Model::evaluate(Recorder& recorder, Tensor in) const {
  const Stream stream = trunk(recorder, in);
  return stage_.head ? head_.evaluate(recorder, stream) : hand_on(recorder, stream);
}

Tensor Model::backward(Recorder& recorder, Tensor dout, const Finished& finished) const {
  Tensor dsum = dout;
  if (stage_.head) {
    dsum = head_.backward(recorder);
    finished(head_.parameters());
  }
  for (std::size_t i = layers().size(); i-- > 0;) {
    dsum = layers()[i].backward(recorder, dsum);
    if (!recorder.batch().weights_later) finished(layers()[i].parameters());
  }
  if (!stage_.embedding) return dsum;
  embed_backward(recorder, dsum);
  if (!shares_embedding()) finished({&embedding_, 1});
  return {};
}

void Model::backward_weights(Recorder& recorder, const Finished& finished) const {
  for (std::size_t i = layers().size(); i-- > 0;) {
    layers()[i].backward_weights(recorder);
    finished(layers()[i].parameters());
  }
}

void Model::embed_backward(Recorder& recorder, Tensor dsum) const {
  recorder.set_prefix("embedding");
  const std::int64_t n = recorder.tokens(), vocabulary = embedding_.local(0);
  const Tensor dx = rows_.gather(recorder, "dsum", dsum);
  const Tensor workspace =
      recorder.workspace("workspace", kernels::embedding_backward_workspace_bytes(n, vocabulary));
  const Tensor gradient = recorder.gradient(embedding_);
  // The head of this rank, if the weight is its too, has stored its gradient already.
  const bool accumulate = recorder.batch().accumulate || (config_.tied_embeddings && stage_.head);
  recorder.compute("backward",
                   kernels::embedding_backward_cost(n, vocabulary, config_.width,
                                                    recorder.storage(), accumulate),
                   {read(local_tokens(recorder, "local_tokens_again")), read(dx),
                    accumulate ? update(gradient) : write(gradient), write(workspace)},
                   [accumulate](execution::Queue& q, Views v) {
                     kernels::embedding_backward(q, v[0], v[1], v[2], v[3], accumulate);
                   });
}

bool Model::shares_experts() const {
  return config_.pattern.find('E') != std::string::npos &&
         ranks_.group(parallel::Group::experts).size() > 1;
}

bool Model::has_router_losses() const {
  return config_.pattern.find('E') != std::string::npos &&
         (config_.moe.aux_coeff > 0 || config_.moe.z_coeff > 0);
}

std::vector<Tensor> Model::step_counts(Recorder& recorder) const {
  std::vector<Tensor> all;
  const auto zeros = [&](const char* name, int begin, int end) {
    std::int64_t count = 0;
    for (int i = begin; i < end; ++i)
      count += layers_[static_cast<std::size_t>(i)].mixer().step_count_elements();
    if (count == 0) return;
    all.push_back(recorder.scratch(name, recorder.accumulation(), {count}));
    recorder.compute(name, kernels::fill_cost(count, recorder.accumulation()), {write(all.back())},
                     [](execution::Queue& q, Views v) { kernels::fill(q, v[0], 0); });
  };
  recorder.set_prefix("stage");
  zeros("counts_before", 0, stage_.begin);
  for (const Layer& layer : layers())
    for (const Tensor count : layer.mixer().step_counts(recorder)) all.push_back(count);
  recorder.set_prefix("stage");
  zeros("counts_behind", stage_.end, whole().end);
  return all;
}

void Model::end_of_step(Recorder& recorder, Tensor step_ok) const {
  for (const Layer& layer : layers()) {
    recorder.set_prefix(fmt::format("layers.{}.{}", layer.index(), layer.mixer().scope()));
    layer.mixer().end_of_step(recorder, step_ok);
  }
}

}  // namespace stowage::layers
