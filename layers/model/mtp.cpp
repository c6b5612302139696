#include "layers/model/mtp.hpp"

#include <fmt/core.h>

#include "inputs/deck/mtp_module.hpp"
#include "kernels/cross_entropy/loss_sum.hpp"
#include "kernels/norm/rmsnorm.hpp"
#include "layers/mixers/kinds.hpp"

namespace stowage::layers {

std::string mtp_loss_name(int depth) { return fmt::format("mtp_loss_{}", depth); }

Mtp::Mtp(const ModelConfig& config, const parallel::Ranks& ranks, const Embedding& embedding,
         double aux_scale)
    : depths_(config.mtp.depths),
      width_(config.width),
      epsilon_(config.norm_epsilon),
      zero_centred_(config.zero_centred_norms),
      embedding_(embedding) {
  for (int b = 0; b < config.mtp.blocks(); ++b)
    blocks_.push_back(make_block(config, ranks, aux_scale, b));
}

Mtp::Block Mtp::make_block(const ModelConfig& config, const parallel::Ranks& ranks,
                           double aux_scale, int index) const {
  const std::string prefix = fmt::format("mtp.{}", index);
  const std::string group = Partition(ranks.group(parallel::Group::tensor)).replicated();
  const auto norm = [&](const char* name) {
    return Parameter{
        prefix + name, {config.width}, norm_init(config.zero_centred_norms), false, group};
  };
  const auto product = [&](const char* name) {
    return Product{{prefix + name,
                    {config.width, config.width},
                    Init::normal,
                    true,
                    group,
                    {},
                    {},
                    {{config.width}}}};
  };
  Block block{norm(".embedding_norm.weight"),
              norm(".hidden_norm.weight"),
              product(".embedding_proj.weight"),
              product(".hidden_proj.weight"),
              {},
              Head(config, ranks, embedding_.weight(), prefix + ".final_norm.weight",
                   config.mtp.depths > 1)};
  const int layers = static_cast<int>(config.mtp.pattern.size());
  for (int i = 0; i < layers; ++i) {
    const int number = index * layers + i;
    // Behind the model's layers, and apart from them, so that none of its products rounds for it.
    block.layers.emplace_back(kind_of(config, config.mtp.pattern[static_cast<std::size_t>(i)]),
                              MixerPlace{config, ranks, fmt::format("mtp.layers.{}", number),
                                         config.layers() + 1 + number, aux_scale});
  }
  return block;
}

std::vector<Parameter> Mtp::Block::parameters() const {
  std::vector<Parameter> all = head.own_parameters();
  for (std::size_t i = layers.size(); i-- > 0;)
    for (Parameter& p : layers[i].parameters()) all.push_back(std::move(p));
  for (const Parameter& p :
       {embedding_proj.weight, hidden_proj.weight, embedding_norm, hidden_norm})
    all.push_back(p);
  return all;
}

std::vector<Parameter> Mtp::parameters() const {
  std::vector<Parameter> all;
  for (std::size_t b = blocks_.size(); b-- > 0;)
    for (Parameter& p : blocks_[b].parameters()) all.push_back(std::move(p));
  return all;
}

std::vector<execution::TensorInfo> Mtp::states(Precision precision) const {
  std::vector<execution::TensorInfo> all;
  for (const Block& block : blocks_)
    for (const Layer& layer : block.layers)
      for (execution::TensorInfo& info : layer.mixer().states(precision))
        all.push_back(std::move(info));
  return all;
}

std::vector<Tensor> Mtp::step_counts(Recorder& recorder) const {
  std::vector<Tensor> all;
  for (const Block& block : blocks_)
    for (const Layer& layer : block.layers)
      for (const Tensor count : layer.mixer().step_counts(recorder)) all.push_back(count);
  return all;
}

std::int64_t Mtp::step_count_elements() const {
  std::int64_t count = 0;
  for (const Block& block : blocks_)
    for (const Layer& layer : block.layers) count += layer.mixer().step_count_elements();
  return count;
}

void Mtp::end_of_step(Recorder& recorder, Tensor step_ok) const {
  for (const Block& block : blocks_)
    for (const Layer& layer : block.layers) {
      recorder.set_prefix(layer.prefix());
      layer.mixer().end_of_step(recorder, step_ok);
    }
}

Tensor Mtp::norm(Recorder& recorder, const std::string& name, Tensor x, const Parameter& weight,
                 Tensor rstd) const {
  const std::int64_t n = recorder.rows();
  const Tensor y = recorder.scratch(name, {n, width_});
  recorder.compute(name,
                   kernels::AddRmsnormForward{.rows = n,
                                              .width = width_,
                                              .storage = recorder.storage(),
                                              .residual = false,
                                              .eps = epsilon_,
                                              .zero_centred = zero_centred_},
                   {.x = x,
                    .delta = {},
                    .w = recorder.parameter(weight),
                    .sum = {},
                    .y = y,
                    .rstd = rstd,
                    .amax = {}});
  return y;
}

Tensor Mtp::norm_backward(Recorder& recorder, const std::string& name, Tensor dy, Tensor x,
                          const Parameter& weight, Tensor rstd) const {
  const std::int64_t n = recorder.rows();
  const Tensor dx = recorder.scratch("d" + name, {n, width_});
  const kernels::RmsnormBackward norm{.rows = n,
                                      .width = width_,
                                      .storage = recorder.storage(),
                                      .residual = false,
                                      .accumulate = recorder.batch().accumulate,
                                      .zero_centred = zero_centred_};
  const Tensor workspace = recorder.workspace(name + "_workspace", norm.workspace_bytes());
  recorder.compute(name + "_backward", norm,
                   {.dy = dy,
                    .x = x,
                    .w = recorder.parameter(weight),
                    .rstd = rstd,
                    .dresidual = {},
                    .dx = dx,
                    .dw = recorder.gradient(weight),
                    .workspace = workspace,
                    .amax = {}});
  return dx;
}

Stream Mtp::enter(Recorder& recorder, const Block& block, Tensor hidden) const {
  const std::int64_t n = recorder.rows();
  Saved& kept = recorder.kept<Saved>(*this);
  const std::string_view module = inputs::kMtpModule.name;
  kept.embedding = embedding_.forward(recorder, module);
  kept.hidden = hidden;
  recorder.set_prefix("mtp");
  kept.embedding_rstd = recorder.saved("embedding_rstd", recorder.accumulation(), {n}, module);
  kept.hidden_rstd = recorder.saved("hidden_rstd", recorder.accumulation(), {n}, module);
  const Tensor e =
      norm(recorder, "embedding_norm", kept.embedding, block.embedding_norm, kept.embedding_rstd);
  const Tensor h = norm(recorder, "hidden_norm", hidden, block.hidden_norm, kept.hidden_rstd);
  const Stream stream{recorder.scratch("embedding_out", {n, width_}),
                      recorder.scratch("hidden_out", {n, width_})};
  block.embedding_proj.forward(recorder, "embedding_proj", e, stream.x);
  block.hidden_proj.forward(recorder, "hidden_proj", h, stream.delta);
  return stream;
}

void Mtp::add_losses(Recorder& recorder, Tensor losses, bool accumulate) const {
  const Tensor sums = recorder.program().find(mtp_loss_name(recorder.batch().depth));
  if (!sums) return;
  recorder.set_prefix("loss");
  recorder.compute("sum", kernels::LossSum{recorder.rows(), recorder.storage(), accumulate},
                   {.losses = {losses, recorder.own_rows()},
                    .targets = {recorder.batch().targets, recorder.own_rows()},
                    .sums = sums});
}

void Mtp::forward(Recorder& recorder, Tensor hidden) const {
  for (int depth = 1; depth <= depths_; ++depth) {
    const Block& block = this->block(depth);
    // The output weight's gradient is stored by the model's own head.
    Recorder further = recorder.at_depth(depth, true);
    Stream stream = enter(further, block, hidden);
    for (const Layer& layer : block.layers) stream = layer.forward(further, stream);
    const Tensor losses = block.head.forward(further, stream);
    hidden = block.head.hidden(further);
    add_losses(further, losses, recorder.batch().accumulate);
  }
}

void Mtp::evaluate(Recorder& recorder, Tensor hidden) const {
  for (int depth = 1; depth <= depths_; ++depth) {
    const Block& block = this->block(depth);
    Recorder further = recorder.at_depth(depth, recorder.batch().accumulate);
    Stream stream = enter(further, block, hidden);
    for (const Layer& layer : block.layers) stream = layer.forward(further, stream);
    const Tensor losses = block.head.evaluate(further, stream);
    hidden = block.head.hidden(further);
    add_losses(further, losses, recorder.batch().accumulate);
  }
}

Tensor Mtp::backward(Recorder& recorder, bool embedding_stored, const Finished& finished) const {
  Tensor dhidden;
  for (int depth = depths_; depth > 0; --depth) {
    const Block& block = this->block(depth);
    Recorder further =
        recorder.at_depth(depth, recorder.batch().accumulate || !is_first_of_block(depth));
    Tensor dsum = block.head.backward(further, dhidden);
    for (std::size_t i = block.layers.size(); i-- > 0;)
      dsum = block.layers[i].backward(further, dsum);
    const Saved& kept = further.kept<Saved>(*this);
    further.set_prefix("mtp");
    const auto product = [&](const Product& proj, const std::string& name, Tensor x,
                             const Parameter& weight, Tensor rstd) {
      const Tensor normed =
          norm(further, name + "_norm_again", x, weight,
               further.scratch(name + "_rstd_again", further.accumulation(), {further.rows()}));
      const Tensor dnormed = further.scratch("d" + name, {further.rows(), width_});
      proj.backward_input(further, name + "_proj_backward", dsum, dnormed);
      proj.backward_weight(further, name + "_proj_weight_backward", dsum, normed);
      return norm_backward(further, name + "_norm", dnormed, x, weight, rstd);
    };
    const Tensor dembedding = product(block.embedding_proj, "embedding", kept.embedding,
                                      block.embedding_norm, kept.embedding_rstd);
    dhidden =
        product(block.hidden_proj, "hidden", kept.hidden, block.hidden_norm, kept.hidden_rstd);
    embedding_.backward(further, dembedding,
                        recorder.batch().accumulate || embedding_stored || depth < depths_);
    const bool last_of_block = blocks_.size() > 1 || depth == 1;
    if (last_of_block && !recorder.batch().weights_later) finished(block.parameters(), false);
  }
  return dhidden;
}

void Mtp::backward_weights(Recorder& recorder, const Finished& finished) const {
  for (int depth = depths_; depth > 0; --depth) {
    const Block& block = this->block(depth);
    Recorder further = recorder.at_depth(depth, false);
    for (std::size_t i = block.layers.size(); i-- > 0;) block.layers[i].backward_weights(further);
    if (blocks_.size() > 1 || depth == 1) finished(block.parameters(), false);
  }
}

}  // namespace stowage::layers
