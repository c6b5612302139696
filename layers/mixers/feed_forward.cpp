#include "layers/mixers/feed_forward.hpp"

namespace stowage::layers {

using Views = std::span<const execution::View>;
using kernels::activation_width;

namespace {

/// Rows of fc1: those of the gate and of what it gates each have their share on every rank.
std::vector<Block> blocks(kernels::Activation activation, std::int64_t ffn) {
  return std::vector<Block>(static_cast<std::size_t>(activation_width(activation, 1)), ffn);
}

}  // namespace

FeedForward::FeedForward(const ModelConfig& config, std::int64_t ffn, const char* key,
                         std::shared_ptr<const parallel::RankGroup> tensor,
                         const std::string& prefix, std::string module)
    : width_(config.width),
      rows_(tensor, config.tensor_pieces),
      ffn_(Partition(*tensor).share(ffn, key)),
      activation_(config.mlp.activation),
      module_(std::move(module)),
      fc1_{{prefix + ".fc1.weight",
            {activation_width(activation_, ffn), config.width},
            Init::normal,
            true,
            "dense",
            Partition(*tensor).cut(0, blocks(activation_, ffn))}},
      fc2_{{prefix + ".fc2.weight",
            {config.width, ffn},
            Init::residual_normal,
            true,
            "dense",
            Partition(*tensor).cut(1, {ffn})}},
      parameters_{fc2_.weight, fc1_.weight} {}

Tensor FeedForward::forward(Recorder& recorder, const std::string& name, Tensor mine) const {
  const std::int64_t n = recorder.tokens();
  const Tensor x = rows_.gather(recorder, name + "x", mine);
  Tensor& hidden = recorder.kept<Hidden>(*this).fc1_out;
  hidden = recorder.saved(name + "fc1_out", {n, fc1_.outputs()}, module_);
  for (const RowPiece& piece : rows_.pieces(n))
    fc1_.forward(recorder, name + "fc1" + piece.suffix, x, hidden, piece.all);
  const Tensor active = recorder.scratch(name + "act_out", {n, ffn_});
  recorder.compute(
      name + "act", kernels::activation_forward_cost(activation_, n, ffn_, recorder.storage()),
      {read(hidden), write(active)}, [kind = activation_](execution::Queue& q, Views v) {
        kernels::activation_forward(q, kind, v[0], {}, v[1]);
      });
  return rows_.reduce_each(recorder, name + "out", name + "delta", width_,
                           [&](Tensor y, execution::Range rows, const std::string& suffix) {
                             fc2_.forward(recorder, name + "fc2" + suffix, active, y, rows);
                           });
}

Tensor FeedForward::backward(Recorder& recorder, const std::string& name, Tensor dy_mine,
                             Tensor x_mine, Tensor onto) const {
  const std::int64_t n = recorder.tokens();
  const Tensor dy = rows_.gather(recorder, name + "dy", dy_mine);
  const Tensor x = rows_.gather(recorder, name + "x_again", x_mine);
  const Tensor hidden = recorder.kept<Hidden>(*this).fc1_out;
  const Tensor active = recorder.scratch(name + "act_again", {n, ffn_});
  recorder.compute(name + "act_again",
                   kernels::activation_forward_cost(activation_, n, ffn_, recorder.storage()),
                   {read(hidden), write(active)},
                   [kind = activation_](execution::Queue& q, Views v) {
                     kernels::activation_forward(q, kind, v[0], {}, v[1]);
                   });
  fc2_.backward_weight(recorder, name + "fc2_weight_backward", dy, active);
  const Tensor dactive = recorder.scratch(name + "dact", {n, ffn_});
  fc2_.backward_input(recorder, name + "fc2_backward", dy, dactive);
  const Tensor dhidden = recorder.scratch(name + "dfc1", {n, fc1_.outputs()});
  recorder.compute(name + "act_backward",
                   kernels::activation_backward_cost(activation_, n, ffn_, recorder.storage()),
                   {read(dactive), read(hidden), write(dhidden)},
                   [kind = activation_](execution::Queue& q, Views v) {
                     kernels::activation_backward(q, kind, v[0], v[1], {}, v[2], {});
                   });
  const bool added_at_once = onto && rows_.size() == 1;
  const Tensor dx = added_at_once ? onto : recorder.scratch(name + "dx", {n, width_});
  fc1_.backward_input(recorder, name + "fc1_backward", dhidden, dx, added_at_once);
  const Tensor mine = rows_.reduce(recorder, name + "dx_mine", dx);
  fc1_.backward_weight(recorder, name + "fc1_weight_backward", dhidden, x);
  if (!onto || added_at_once) return mine;
  recorder.add(name + "add_dx", mine, onto);
  return onto;
}

}  // namespace stowage::layers
