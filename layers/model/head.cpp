#include "layers/model/head.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "kernels/cross_entropy/linear_cross_entropy.hpp"
#include "kernels/cross_entropy/loss_sum.hpp"
#include "kernels/cross_entropy/sharded_cross_entropy.hpp"
#include "kernels/norm/rmsnorm.hpp"
#include "layers/mixers/products.hpp"

namespace stowage::layers {

using Views = std::span<const execution::View>;

Head::Head(const ModelConfig& config, const parallel::Ranks& ranks, const Parameter& embedding)
    : width_(config.width),
      rows_(ranks.shared_group(parallel::Group::tensor)),
      group_(ranks.shared_group(parallel::Group::tensor)),
      vocabulary_(Partition(*group_).share(config.vocabulary, "model.vocab_size")),
      epsilon_(config.norm_epsilon),
      tied_(config.tied_embeddings),
      norm_{
          "final_norm.weight", {config.width}, Init::ones, false, Partition(*group_).replicated()},
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
  const Tensor normed = recorder.scratch("normed", {n, width_});
  kept.sum = recorder.saved("sum", {n, width_}, "");
  kept.rstd = recorder.saved("rstd", recorder.accumulation(), {n}, "");
  recorder.compute("norm",
                   kernels::AddRmsnormForward{.rows = n,
                                              .width = width_,
                                              .storage = recorder.storage(),
                                              .residual = true,
                                              .eps = epsilon_},
                   {.x = stream.x,
                    .delta = stream.delta,
                    .w = recorder.parameter(norm_),
                    .sum = kept.sum,
                    .y = normed,
                    .rstd = kept.rstd});
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
  if (const Tensor logits = recorder.program().find(kLogits))
    Product{output_}.forward(recorder, "logits", normed, logits);
  const Tensor sum = recorder.program().find(kHits);
  const Tensor hits =
      sum ? recorder.scratch("token_hits", recorder.accumulation(), {recorder.tokens()}) : Tensor{};
  const Tensor losses =
      rows_.size() == 1 ? fused(recorder, normed, {}, hits) : sharded(recorder, normed, {}, hits);
  if (sum)
    recorder.compute("sum_hits", kernels::loss_sum_cost(recorder.rows(), recorder.accumulation()),
                     {{hits, Access::read, recorder.own_rows()},
                      {recorder.batch().targets, Access::read, recorder.own_rows()},
                      recorder.into(sum)},
                     [accumulate = recorder.batch().accumulate](execution::Queue& q, Views v) {
                       kernels::loss_sum(q, v[0], v[1], v[2], accumulate);
                     });
  return losses;
}

Tensor Head::fused(Recorder& recorder, Tensor normed, Tensor dnormed, Tensor hits) const {
  const std::int64_t n = recorder.tokens();
  const Tensor losses = recorder.scratch("losses", recorder.accumulation(), {n});
  const Tensor workspace = recorder.workspace(
      "workspace",
      kernels::linear_cross_entropy_workspace_bytes(n, vocabulary_, width_, recorder.storage()));
  if (!dnormed) {
    std::vector<Use> uses = {read(normed), read(recorder.parameter(output_)),
                             read(recorder.batch().targets), write(losses), write(workspace)};
    if (hits) uses.push_back(write(hits));
    recorder.compute(
        "loss", kernels::linear_cross_entropy_loss_cost(n, vocabulary_, width_, recorder.storage()),
        std::move(uses), [](execution::Queue& q, Views v) {
          kernels::linear_cross_entropy_loss(q, v[0], v[1], v[2], v[3], v[4],
                                             v.size() > 5 ? v[5] : execution::View{});
        });
    return losses;
  }
  const bool accumulate = recorder.batch().accumulate;
  recorder.compute(
      "loss_and_gradients",
      kernels::linear_cross_entropy_cost(n, vocabulary_, width_, recorder.storage(), accumulate),
      {read(normed), read(recorder.parameter(output_)), read(recorder.batch().targets),
       read(recorder.batch().loss_scale), write(losses), write(dnormed),
       recorder.into(recorder.gradient(output_)), write(workspace)},
      [accumulate](execution::Queue& q, Views v) {
        kernels::linear_cross_entropy(q, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7],
                                      accumulate);
      });
  return losses;
}

/// Works through chunks of rows: the logits of the next one are made while the stats of one travel.
Tensor Head::sharded(Recorder& recorder, Tensor normed, Tensor dnormed, Tensor hits) const {
  const std::int64_t n = recorder.tokens(), first = group_->rank() * vocabulary_;
  const std::int64_t chunk = kernels::sharded_cross_entropy_chunk(n, vocabulary_);
  const execution::Dtype accum = recorder.accumulation();
  const Tensor losses = recorder.scratch("losses", accum, {n});
  struct Chunk {
    execution::Range rows, elements;
    Tensor logits, stats;
  };
  std::vector<Chunk> chunks;
  const auto start = [&](std::int64_t begin) {
    const std::int64_t end = std::min(begin + chunk, n), rows = end - begin;
    const std::string at = fmt::format("/{}", chunks.size());
    Chunk& c = chunks.emplace_back(Chunk{{begin, end}, {begin * width_, end * width_}, {}, {}});
    c.logits = recorder.scratch("logits" + at, accum, {rows, vocabulary_});
    const Tensor own = recorder.scratch("own_stats" + at, accum, {rows, 3});
    recorder.compute("logits" + at,
                     kernels::sharded_logits_cost(rows, vocabulary_, width_, recorder.storage()),
                     {{normed, Access::read, c.elements},
                      read(recorder.parameter(output_)),
                      {recorder.batch().targets, Access::read, c.rows},
                      write(c.logits),
                      write(own)},
                     [first](execution::Queue& q, Views v) {
                       kernels::sharded_logits(q, v[0], v[1], v[2], first, v[3], v[4]);
                     });
    c.stats = SharedRows(group_).gather(recorder, "stats" + at, own);
  };
  const auto finish = [&](std::size_t index) {
    const Chunk& c = chunks[index];
    const bool accumulate = recorder.batch().accumulate || index > 0;
    std::vector<Use> uses = {{normed, Access::read, c.elements},
                             read(recorder.parameter(output_)),
                             {recorder.batch().targets, Access::read, c.rows},
                             read(c.stats),
                             update(c.logits),
                             {losses, Access::write, c.rows}};
    if (dnormed) {
      const Tensor gradient = recorder.gradient(output_);
      uses.push_back(read(recorder.batch().loss_scale));
      uses.push_back({dnormed, Access::write, c.elements});
      uses.push_back(accumulate ? update(gradient) : write(gradient));
    }
    if (hits) uses.push_back({hits, Access::write, c.rows});
    recorder.compute(
        fmt::format("loss/{}", index),
        kernels::sharded_cross_entropy_cost(c.rows.end - c.rows.begin, vocabulary_, width_,
                                            recorder.storage(), bool{dnormed}, accumulate),
        std::move(uses), [first, accumulate](execution::Queue& q, Views v) {
          kernels::ShardedCrossEntropyOperands operands{.h = v[0],
                                                        .w = v[1],
                                                        .targets = v[2],
                                                        .stats = v[3],
                                                        .logits = v[4],
                                                        .losses = v[5],
                                                        .hits = {},
                                                        .scale = {},
                                                        .dh = {},
                                                        .dw = {}};
          if (v.size() == 7) operands.hits = v[6];
          if (v.size() > 7) {
            operands.scale = v[6];
            operands.dh = v[7];
            operands.dw = v[8];
          }
          kernels::sharded_cross_entropy(q, operands, first, accumulate);
        });
  };
  for (std::int64_t begin = 0; begin < n; begin += chunk) {
    start(begin);
    if (chunks.size() > 1) finish(chunks.size() - 2);
  }
  finish(chunks.size() - 1);
  return losses;
}

Tensor Head::backward(Recorder& recorder) const {
  recorder.set_prefix("head");
  const std::int64_t n = recorder.rows();
  const Saved& kept = recorder.kept<Saved>(*this);
  const Tensor dsum = recorder.scratch("dsum", {n, width_});
  const kernels::RmsnormBackward norm{.rows = n,
                                      .width = width_,
                                      .storage = recorder.storage(),
                                      .residual = false,
                                      .accumulate = recorder.batch().accumulate};
  const Tensor workspace = recorder.workspace("norm_workspace", norm.workspace_bytes());
  recorder.compute("norm_backward", norm,
                   {.dy = kept.dnormed,
                    .x = kept.sum,
                    .w = recorder.parameter(norm_),
                    .rstd = kept.rstd,
                    .dresidual = {},
                    .dx = dsum,
                    .dw = recorder.gradient(norm_),
                    .workspace = workspace});
  return dsum;
}

}  // namespace stowage::layers
