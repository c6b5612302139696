#include "layers/model/head.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "inputs/deck/mtp_module.hpp"
#include "kernels/cross_entropy/linear_cross_entropy.hpp"
#include "kernels/cross_entropy/loss_sum.hpp"
#include "kernels/cross_entropy/sharded_cross_entropy.hpp"
#include "kernels/norm/rmsnorm.hpp"
#include "layers/mixers/products.hpp"
#include "layers/mixers/stream_squares.hpp"

namespace stowage::layers {

Head::Head(const ModelConfig& config, const parallel::Ranks& ranks, const Parameter& embedding,
           std::string norm, bool hands_on)
    : width_(config.width),
      layers_(config.layers()),
      rows_(ranks.shared_group(parallel::Group::tensor)),
      group_(ranks.shared_group(parallel::Group::tensor)),
      vocabulary_(Partition(*group_).share(config.vocabulary, "model.vocab_size")),
      epsilon_(config.norm_epsilon),
      zero_centred_(config.zero_centred_norms),
      tied_(config.tied_embeddings),
      hands_on_(hands_on),
      z_loss_coeff_(config.z_loss_coeff),
      norm_{std::move(norm),
            {config.width},
            norm_init(config.zero_centred_norms),
            false,
            Partition(*group_).replicated()},
      output_{"output.weight", {config.vocabulary, config.width},
              Init::normal,    true,
              "dense",         Partition(*group_).cut(0, {config.vocabulary})} {
  if (tied_) output_ = embedding;
}

std::vector<Parameter> Head::parameters() const {
  if (tied_) return {norm_};
  return {output_, norm_};
}

Tensor Head::norm(Recorder& recorder, Stream stream) const {
  recorder.set_prefix("head");
  const std::int64_t n = recorder.rows();
  Saved& kept = recorder.kept<Saved>(*this);
  const std::string_view module = recorder.batch().depth > 0 ? inputs::kMtpModule.name : "";
  const Tensor normed = hands_on_ ? recorder.saved("normed", {n, width_}, module)
                                  : recorder.scratch("normed", {n, width_});
  kept.normed = normed;
  kept.sum = recorder.saved("sum", {n, width_}, module);
  kept.rstd = recorder.saved("rstd", recorder.accumulation(), {n}, module);
  recorder.compute("norm",
                   kernels::AddRmsnormForward{.rows = n,
                                              .width = width_,
                                              .storage = recorder.storage(),
                                              .residual = true,
                                              .eps = epsilon_,
                                              .zero_centred = zero_centred_},
                   {.x = stream.x,
                    .delta = stream.delta,
                    .w = recorder.parameter(norm_),
                    .sum = kept.sum,
                    .y = normed,
                    .rstd = kept.rstd,
                    .amax = {}});
  add_stream_squares(recorder, kept.rstd, epsilon_, layers_);
  return normed;
}

Tensor Head::forward(Recorder& recorder, Stream stream) const {
  const Tensor normed = rows_.gather(recorder, "normed_all", norm(recorder, stream));
  const Tensor dnormed = recorder.scratch("dnormed", {recorder.tokens(), width_});
  const Tensor losses = rows_.size() == 1 ? fused(recorder, normed, dnormed, {})
                                          : sharded(recorder, normed, dnormed, {});
  recorder.kept<Saved>(*this).dnormed = rows_.reduce(recorder, "dnormed_mine", dnormed);
  return losses;
}

Tensor Head::evaluate(Recorder& recorder, Stream stream) const {
  const Tensor normed = rows_.gather(recorder, "normed_all", norm(recorder, stream));
  // Logits and hits are those of the next token.
  const bool next = recorder.batch().depth == 0;
  if (const Tensor logits = recorder.program().find(kLogits); next && logits)
    Product{output_}.forward(recorder, "logits", normed, logits);
  const Tensor sum = next ? recorder.program().find(kHits) : Tensor{};
  const Tensor hits =
      sum ? recorder.scratch("token_hits", recorder.accumulation(), {recorder.tokens()}) : Tensor{};
  const Tensor losses =
      rows_.size() == 1 ? fused(recorder, normed, {}, hits) : sharded(recorder, normed, {}, hits);
  if (sum)
    recorder.compute("sum_hits",
                     kernels::LossSum{recorder.rows(), recorder.storage(), recorder.batch().later},
                     {.losses = {hits, recorder.own_rows()},
                      .targets = {recorder.batch().targets, recorder.own_rows()},
                      .sums = sum});
  return losses;
}

void Head::decode(Recorder& recorder, Stream stream) const {
  const Tensor normed = norm(recorder, stream);
  Product{output_}.forward(recorder, "logits", normed, recorder.program().find(kLogits));
}

Tensor Head::add_z_losses(Recorder& recorder) const {
  Tensor& z_losses = recorder.kept<Saved>(*this).z_losses;
  if (z_coeff(recorder) > 0)
    z_losses = recorder.scratch("z_losses", recorder.accumulation(), {recorder.tokens()});
  return z_losses;
}

Tensor Head::fused(Recorder& recorder, Tensor normed, Tensor dnormed, Tensor hits) const {
  const std::int64_t n = recorder.tokens();
  const Tensor losses = recorder.scratch("losses", recorder.accumulation(), {n});
  const Tensor z_losses = add_z_losses(recorder);
  const bool gradients{dnormed};
  const kernels::LinearCrossEntropy loss{.tokens = n,
                                         .vocabulary = vocabulary_,
                                         .width = width_,
                                         .storage = recorder.storage(),
                                         .gradients = gradients,
                                         .accumulate = recorder.batch().accumulate,
                                         .with_hits = bool{hits},
                                         .z_coeff = z_coeff(recorder)};
  const Tensor workspace = recorder.workspace("workspace", loss.workspace_bytes());
  recorder.compute(gradients ? "loss_and_gradients" : "loss", loss,
                   {.h = normed,
                    .w = recorder.parameter(output_),
                    .targets = recorder.batch().targets,
                    .scale = gradients ? recorder.batch().loss_scale : Tensor{},
                    .losses = losses,
                    .dh = dnormed,
                    .dw = gradients ? recorder.gradient(output_) : Tensor{},
                    .workspace = workspace,
                    .hits = hits,
                    .z_losses = z_losses});
  return losses;
}

/// Works through chunks of rows: the logits of the next one are made while the stats of one travel.
Tensor Head::sharded(Recorder& recorder, Tensor normed, Tensor dnormed, Tensor hits) const {
  const std::int64_t n = recorder.tokens(), first = group_->rank() * vocabulary_;
  const std::int64_t chunk = kernels::sharded_cross_entropy_chunk(n, vocabulary_);
  const execution::Dtype accum = recorder.accumulation();
  const Tensor losses = recorder.scratch("losses", accum, {n}), z_losses = add_z_losses(recorder);
  struct Chunk {
    execution::Range rows;
    Tensor logits, stats;
  };
  std::vector<Chunk> chunks;
  const auto start = [&](std::int64_t begin) {
    const std::int64_t end = std::min(begin + chunk, n), rows = end - begin;
    const std::string at = fmt::format("/{}", chunks.size());
    Chunk& c = chunks.emplace_back(Chunk{{begin, end}, {}, {}});
    c.logits = recorder.scratch("logits" + at, accum, {rows, vocabulary_});
    const Tensor own = recorder.scratch("own_stats" + at, accum, {rows, 3});
    recorder.compute("logits" + at,
                     kernels::ShardedLogits{.rows = rows,
                                            .vocabulary = vocabulary_,
                                            .width = width_,
                                            .first = first,
                                            .storage = recorder.storage()},
                     {.h = {normed, c.rows},
                      .w = recorder.parameter(output_),
                      .targets = {recorder.batch().targets, c.rows},
                      .logits = c.logits,
                      .stats = own});
    c.stats = SharedRows(group_).gather(recorder, "stats" + at, own);
  };
  const auto finish = [&](std::size_t index) {
    const Chunk& c = chunks[index];
    const bool gradients{dnormed};
    recorder.compute(
        fmt::format("loss/{}", index),
        kernels::ShardedCrossEntropy{.rows = c.rows.end - c.rows.begin,
                                     .vocabulary = vocabulary_,
                                     .width = width_,
                                     .first = first,
                                     .ranks = group_->size(),
                                     .storage = recorder.storage(),
                                     .gradients = gradients,
                                     .accumulate = recorder.batch().accumulate || index > 0,
                                     .with_hits = bool{hits},
                                     .z_coeff = z_coeff(recorder)},
        {.h = {normed, c.rows},
         .w = recorder.parameter(output_),
         .targets = {recorder.batch().targets, c.rows},
         .stats = c.stats,
         .logits = c.logits,
         .losses = {losses, c.rows},
         .scale = gradients ? recorder.batch().loss_scale : Tensor{},
         .dh = {dnormed, c.rows},
         .dw = gradients ? recorder.gradient(output_) : Tensor{},
         .hits = {hits, c.rows},
         .z_losses = {z_losses, c.rows}});
  };
  for (std::int64_t begin = 0; begin < n; begin += chunk) {
    start(begin);
    if (chunks.size() > 1) finish(chunks.size() - 2);
  }
  finish(chunks.size() - 1);
  return losses;
}

Tensor Head::backward(Recorder& recorder, Tensor dhidden) const {
  recorder.set_prefix("head");
  const std::int64_t n = recorder.rows();
  const Saved& kept = recorder.kept<Saved>(*this);
  if (dhidden) recorder.add("add_dhidden", dhidden, kept.dnormed);
  const Tensor dsum = recorder.scratch("dsum", {n, width_});
  const kernels::RmsnormBackward norm{.rows = n,
                                      .width = width_,
                                      .storage = recorder.storage(),
                                      .residual = false,
                                      .accumulate = recorder.batch().accumulate,
                                      .zero_centred = zero_centred_};
  const Tensor workspace = recorder.workspace("norm_workspace", norm.workspace_bytes());
  recorder.compute("norm_backward", norm,
                   {.dy = kept.dnormed,
                    .x = kept.sum,
                    .w = recorder.parameter(norm_),
                    .rstd = kept.rstd,
                    .dresidual = {},
                    .dx = dsum,
                    .dw = recorder.gradient(norm_),
                    .workspace = workspace,
                    .amax = {}});
  return dsum;
}

}  // namespace stowage::layers
