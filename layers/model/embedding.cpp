#include "layers/model/embedding.hpp"

#include "kernels/embedding/embedding.hpp"
#include "kernels/shards/shards.hpp"

namespace stowage::layers {

Embedding::Embedding(const ModelConfig& config, const parallel::Ranks& ranks)
    : width_(config.width),
      rows_(ranks.shared_group(parallel::Group::tensor)),
      weight_{"embedding.weight",
              {config.vocabulary, config.width},
              Init::normal,
              true,
              "dense",
              Partition(ranks.group(parallel::Group::tensor)).cut(0, {config.vocabulary})} {}

Tensor Embedding::local_tokens(Recorder& recorder, const char* name) const {
  const Tensor tokens = recorder.batch().tokens;
  if (rows_.size() == 1) return tokens;
  const std::int64_t rows = weight_.local(0), first = rows_.rank() * rows;
  const Tensor local = recorder.scratch(name, execution::Dtype::int32, {recorder.tokens()});
  recorder.compute(name, kernels::Localise{recorder.tokens(), first, rows},
                   {.ids = tokens, .local = local});
  return local;
}

Tensor Embedding::forward(Recorder& recorder, std::string_view module) const {
  recorder.set_prefix("embedding");
  const std::int64_t n = recorder.tokens();
  const bool shared = rows_.size() > 1;
  const Tensor x =
      shared ? recorder.scratch("rows", {n, width_}) : recorder.saved("out", {n, width_}, module);
  recorder.compute("forward",
                   kernels::EmbeddingForward{.tokens = n,
                                             .vocabulary = weight_.local(0),
                                             .width = width_,
                                             .storage = recorder.storage()},
                   {.token = local_tokens(recorder, "local_tokens"),
                    .table = recorder.parameter(weight_),
                    .x = x});
  if (!shared) return x;
  const Tensor mine = recorder.saved("out", {recorder.rows(), width_}, module);
  rows_.sum_to(recorder, rows_.send_partials(recorder, "out", x), mine);
  return mine;
}

void Embedding::backward(Recorder& recorder, Tensor dx, bool accumulate) const {
  recorder.set_prefix("embedding");
  const Tensor dx_all = rows_.gather(recorder, "dsum", dx);
  const kernels::EmbeddingBackward embedding{.tokens = recorder.tokens(),
                                             .vocabulary = weight_.local(0),
                                             .width = width_,
                                             .storage = recorder.storage(),
                                             .accumulate = accumulate};
  const Tensor workspace = recorder.workspace("workspace", embedding.workspace_bytes());
  const Tensor gradient = recorder.gradient(weight_);
  recorder.compute("backward", embedding,
                   {.token = local_tokens(recorder, "local_tokens_again"),
                    .dx = dx_all,
                    .dtable = gradient,
                    .workspace = workspace});
}

}  // namespace stowage::layers
