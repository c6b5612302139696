#include "layers/model.hpp"

#include <fmt/core.h>

#include "execution/error.hpp"
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

std::vector<Parameter> Model::parameters() const {
  std::vector<Parameter> all = head_.parameters();
  for (std::size_t i = layers_.size(); i-- > 0;)
    for (Parameter& p : layers_[i].parameters()) all.push_back(std::move(p));
  all.push_back(embedding_);
  return all;
}

std::vector<execution::TensorInfo> Model::states() const {
  std::vector<execution::TensorInfo> all;
  for (const Layer& layer : layers_)
    for (execution::TensorInfo& info : layer.mixer().states(precision_))
      all.push_back(std::move(info));
  return all;
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
  const std::string_view module =
      layers_.empty() ? std::string_view("") : layers_.front().mixer().norm_module();
  const bool shared = rows_.size() > 1;
  const Tensor x = shared ? recorder.scratch("rows", {n, config_.width})
                          : recorder.saved("out", {n, config_.width}, module);
  recorder.compute(
      "forward", kernels::embedding_forward_cost(n, config_.width, recorder.storage()),
      {read(local_tokens(recorder, "local_tokens")), read(recorder.parameter(embedding_)),
       write(x)},
      [](execution::Queue& q, Views v) { kernels::embedding_forward(q, v[0], v[1], v[2]); });
  if (!shared) return x;
  const Tensor mine = recorder.saved("out", {recorder.rows(), config_.width}, module);
  rows_.reduce_to(recorder, "out", x, mine);
  return mine;
}

Stream Model::trunk(Recorder& recorder) const {
  Stream stream{embed(recorder), {}};
  for (const Layer& layer : layers_) stream = layer.forward(recorder, stream);
  return stream;
}

Tensor Model::forward(Recorder& recorder) const { return head_.forward(recorder, trunk(recorder)); }

Tensor Model::evaluate(Recorder& recorder) const {
  return head_.evaluate(recorder, trunk(recorder));
}

void Model::backward(Recorder& recorder, const Finished& finished) const {
  Tensor dsum = head_.backward(recorder);
  finished(head_.parameters());
  for (std::size_t i = layers_.size(); i-- > 0;) {
    dsum = layers_[i].backward(recorder, dsum);
    finished(layers_[i].parameters());
  }
  recorder.set_prefix("embedding");
  const std::int64_t n = recorder.tokens(), vocabulary = embedding_.local(0);
  const Tensor dx = rows_.gather(recorder, "dsum", dsum);
  const Tensor workspace =
      recorder.workspace("workspace", kernels::embedding_backward_workspace_bytes(n, vocabulary));
  const Tensor gradient = recorder.gradient(embedding_);
  const bool accumulate = recorder.batch().accumulate || config_.tied_embeddings;
  recorder.compute("backward",
                   kernels::embedding_backward_cost(n, vocabulary, config_.width,
                                                    recorder.storage(), accumulate),
                   {read(local_tokens(recorder, "local_tokens_again")), read(dx),
                    accumulate ? update(gradient) : write(gradient), write(workspace)},
                   [accumulate](execution::Queue& q, Views v) {
                     kernels::embedding_backward(q, v[0], v[1], v[2], v[3], accumulate);
                   });
  finished({&embedding_, 1});
}

bool Model::has_router_losses() const {
  return config_.pattern.find('E') != std::string::npos &&
         (config_.moe.aux_coeff > 0 || config_.moe.z_coeff > 0);
}

std::vector<Tensor> Model::step_counts(Recorder& recorder) const {
  std::vector<Tensor> all;
  for (const Layer& layer : layers_)
    for (const Tensor count : layer.mixer().step_counts(recorder)) all.push_back(count);
  return all;
}

void Model::end_of_step(Recorder& recorder, Tensor step_ok) const {
  for (const Layer& layer : layers_) {
    recorder.set_prefix(fmt::format("layers.{}.{}", layer.index(), layer.mixer().scope()));
    layer.mixer().end_of_step(recorder, step_ok);
  }
}

}  // namespace stowage::layers
