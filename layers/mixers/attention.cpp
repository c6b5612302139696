#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/activation/sigmoid.hpp"
#include "kernels/decode/attention_step.hpp"
#include "kernels/norm/head_rmsnorm.hpp"
#include "kernels/rope/rope.hpp"
#include "layers/context/context_attention.hpp"
#include "layers/mixers/layer.hpp"
#include "layers/mixers/products.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {
namespace {

/// Causal grouped-query attention inside documents. q, k and v are columns of one projection; heads
/// of q and k may be normed, then turned by their positions. A gate of its own projection may scale
/// what the heads give.
class Attention final : public Mixer {
 public:
  explicit Attention(const MixerPlace& place)
      : prefix_(place.prefix + ".attn"),
        width_(place.config.width),
        rows_(place.ranks.shared_group(parallel::Group::tensor)),
        partition_(place.ranks.group(parallel::Group::tensor)),
        rope_(place.config.attention.rope),
        rotary_dim_(place.config.attention.rotary_dim()),
        frequencies_(place.config.attention.frequencies),
        norms_(place.config.attention.norms),
        epsilon_(place.config.norm_epsilon),
        zero_centred_(place.config.zero_centred_norms),
        shape_(own_heads(place.config.attention, partition_)),
        core_(make_context_attention(place.config.attention, shape_,
                                     place.ranks.shared_group(parallel::Group::context))),
        qkv_{qkv_weight(place, all_heads(place.config.attention)), place.formats()},
        proj_{{place.prefix + ".attn.proj.weight",
               {width_, query_width(all_heads(place.config.attention))},
               Init::residual_normal,
               true,
               "dense",
               partition_.cut(1, {query_width(all_heads(place.config.attention))}),
               {},
               {{width_}}},
              place.formats()},
        q_norm_{norm_parameter(place.prefix + ".attn.q_norm.weight")},
        k_norm_{norm_parameter(place.prefix + ".attn.k_norm.weight")},
        parameters_{proj_.weight, qkv_.weight} {
    if (norms_) parameters_.insert(parameters_.begin() + 1, {q_norm_, k_norm_});
    if (!place.config.attention.output_gate) return;
    gate_ = {{place.prefix + ".attn.gate.weight",
              {query_width(all_heads(place.config.attention)), width_},
              Init::normal,
              true,
              "dense",
              partition_.cut(0, {query_width(all_heads(place.config.attention))}),
              {},
              {{query_width(all_heads(place.config.attention)), shape_.head_dim}}},
             place.formats()};
    parameters_.push_back(gate_->weight);
  }

  const std::vector<Parameter>& parameters() const override { return parameters_; }
  Rounding input_rounding() const override { return qkv_.rounding(); }

  Tensor forward(Recorder& recorder, Tensor mine) const override {
    Saved& kept = recorder.kept<Saved>(*this);
    kept = {};
    kept.x = mine;
    const AllRows x =
        rows_.gather_others(recorder, "x", qkv_.shared_input(recorder, "x", mine, rows_));
    core_->forward(
        recorder,
        [&](const QkvSection& section, Tensor to) { project(recorder, x, section, to, kept); },
        kept.core);
    return finish(recorder, x, kept);
  }

  Tensor decode(Recorder& recorder, Tensor mine) const override {
    const std::int64_t n = recorder.tokens();
    Saved& kept = recorder.kept<Saved>(*this);
    kept = {};
    const AllRows x = rows_.gather_others(recorder, "x", mine);
    const Tensor qkv = recorder.scratch("qkv", {n, qkv_.outputs()});
    project(recorder, x, QkvSection::all(shape_), qkv, kept);
    kept.core.out = recorder.scratch("core_out", {n, query_width(shape_)});
    const DecodeShape& sequences = recorder.batch().decode;
    const kernels::AttentionStep step{.shape = {.heads = shape_.heads,
                                                .kv_heads = shape_.kv_heads,
                                                .head_dim = shape_.head_dim,
                                                .window = sequences.window,
                                                .scale = shape_.scale},
                                      .sequences = n,
                                      .storage = recorder.storage()};
    const Tensor workspace = recorder.workspace("step_workspace", step.workspace_bytes());
    recorder.compute(
        "core_step", step,
        {.qkv = qkv,
         .positions = recorder.batch().positions,
         .keys = recorder.sequence_state(cache("keys", {recorder.storage()}, sequences)),
         .values = recorder.sequence_state(cache("values", {recorder.storage()}, sequences)),
         .o = kept.core.out,
         .workspace = workspace});
    return finish(recorder, x, kept);
  }
  std::vector<execution::TensorInfo> sequence_states(Precision precision,
                                                     const DecodeShape& shape) const override {
    return {cache("keys", precision, shape), cache("values", precision, shape)};
  }

  Tensor backward(Recorder& recorder, Tensor dy_mine) const override {
    const std::int64_t n = recorder.tokens();
    const Saved& kept = recorder.kept<Saved>(*this);
    const AllRows dy =
        rows_.gather_each(recorder, "dy", proj_.shared_gradient(recorder, "dy", dy_mine, rows_));
    const Tensor x =
        rows_.gather(recorder, "x_again", qkv_.shared_input(recorder, "x_again", kept.x, rows_));
    Tensor dout = recorder.scratch("dcore_out", {n, query_width(shape_)});
    for (const RowBlock& some : dy.blocks)
      proj_.backward_input(recorder, "proj_backward" + some.suffix, dy.of(some), {dout, some.rows});
    proj_.backward_weight(recorder, "proj_weight_backward", dy.all,
                          gated(recorder, "gated_again", kept), rows_.spare_weights());
    Tensor dgate;
    if (gate_) std::tie(dout, dgate) = gate_backward(recorder, kept, dout);
    Tensor dqkv = core_->backward(recorder, kept.core, dout);
    if (rope_) {
      const Tensor draw = recorder.scratch("dqkv_turned", {n, qkv_.outputs()});
      rotate(recorder, dqkv, draw, QkvSection::all(shape_), true);
      dqkv = draw;
    }
    if (norms_) dqkv = norm_backward(recorder, kept.raw, dqkv);
    const Tensor dx = recorder.scratch("dx", {n, width_});
    qkv_.backward_input(recorder, "qkv_backward", dqkv, dx);
    if (gate_) gate_->backward_input(recorder, "gate_backward", dgate, dx, true);
    const SharedRows::Summands summands = rows_.send_partials(recorder, "dx_mine", dx);
    qkv_.backward_weight(recorder, "qkv_weight_backward", dqkv, x);
    if (gate_) gate_->backward_weight(recorder, "gate_weight_backward", dgate, x);
    return rows_.sum(recorder, summands);
  }

 private:
  struct Saved {
    Tensor x;
    Tensor raw;   ///< q, k and v before the norms of q and k, if they have any
    Tensor gate;  ///< before the sigmoid, if there is one
    ContextAttention::Saved core;
  };

  /// Gate and projection of what the heads gave.
  Tensor finish(Recorder& recorder, const AllRows& x, Saved& kept) const {
    if (gate_) {
      kept.gate = recorder.saved("gate", {recorder.tokens(), gate_->outputs()}, "core_attn");
      for (const RowBlock& some : x.blocks)
        gate_->forward(recorder, "gate" + some.suffix, x.of(some), {kept.gate, some.rows});
    }
    const Tensor out = gated(recorder, "gated", kept);
    return rows_.reduce_each(recorder, "out", "delta", width_,
                             [&](const SomeRows& y, const RowBlock& some) {
                               proj_.forward(recorder, "proj" + some.suffix, {out, some.rows}, y);
                             });
  }

  /// Keys or values of each sequence.
  execution::TensorInfo cache(const char* what, Precision precision,
                              const DecodeShape& shape) const {
    return execution::one_buffer(prefix_ + '.' + what, precision.storage,
                                 {shape.sequences, shape_.kv_heads, shape.window, shape_.head_dim},
                                 execution::Lifetime::sequence_state);
  }

  /// The section's columns of [q | k | v], normed and turned.
  void project(Recorder& recorder, const AllRows& x, const QkvSection& section, Tensor result,
               Saved& kept) const {
    const std::vector<std::int64_t> extents = recorder.buffer(result).shape;
    const std::string& suffix = section.suffix;
    Tensor product = result;
    if (norms_)
      product = kept.raw = recorder.saved("qkv_raw", extents, "core_attn");
    else if (rope_)
      product = recorder.scratch("qkv_raw" + suffix, extents);
    for (const RowBlock& some : x.blocks)
      qkv_.forward(recorder, "qkv" + suffix + some.suffix, x.of(some), {product, some.rows},
                   section.outputs);
    if (norms_) {
      const Tensor normed = rope_ ? recorder.scratch("qkv_normed", extents) : result;
      norm(recorder, product, normed);
      product = normed;
    }
    if (rope_) rotate(recorder, product, result, section, false);
  }

  /// What the heads gave, scaled by the gate; without one as it is. Backward makes it again, which
  /// costs less than its bytes.
  Tensor gated(Recorder& recorder, const char* name, const Saved& kept) const {
    if (!gate_) return kept.core.out;
    const Tensor out = recorder.scratch(name, {recorder.tokens(), gate_->outputs()});
    recorder.compute(
        name,
        kernels::SigmoidGateForward{
            .rows = recorder.tokens(), .columns = gate_->outputs(), .storage = recorder.storage()},
        {.x = kept.core.out, .gate = kept.gate, .y = out});
    return out;
  }

  /// @return gradients of what the heads gave, and of the gate
  std::pair<Tensor, Tensor> gate_backward(Recorder& recorder, const Saved& kept,
                                          Tensor dgated) const {
    const std::vector<std::int64_t> extents = {recorder.tokens(), gate_->outputs()};
    const Tensor dout = recorder.scratch("dungated", extents);
    const Tensor dgate = recorder.scratch("dgate", extents);
    recorder.compute(
        "gated_backward",
        kernels::SigmoidGateBackward{
            .rows = extents[0], .columns = extents[1], .storage = recorder.storage()},
        {.dy = dgated, .x = kept.core.out, .gate = kept.gate, .dx = dout, .dgate = dgate});
    return {dout, dgate};
  }

  static kernels::AttentionShape all_heads(const ModelConfig::Attention& attention) {
    kernels::AttentionShape shape;
    shape.heads = attention.heads;
    shape.kv_heads = attention.kv_heads;
    shape.head_dim = attention.head_dim;
    shape.scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
    return shape;
  }
  /// The heads of this rank.
  static kernels::AttentionShape own_heads(const ModelConfig::Attention& attention,
                                           const Partition& partition) {
    kernels::AttentionShape shape = all_heads(attention);
    shape.heads = partition.share(attention.heads, "model.num_attention_heads");
    shape.kv_heads = partition.share_or_copy(attention.kv_heads, "model.num_query_groups");
    return shape;
  }

  Parameter qkv_weight(const MixerPlace& place, const kernels::AttentionShape& all) const {
    // Tensor ranks that have the same key and value head.
    const int copies = partition_.copies(all.kv_heads, "model.num_query_groups");
    const Block keys(kv_width(all), copies);
    return {place.prefix + ".attn.qkv.weight",
            {qkv_width(all), width_},
            Init::normal,
            true,
            "dense",
            partition_.cut(0, {query_width(all), keys, keys}),
            partition_.repeat(QkvSection::keys(shape_).outputs, copies),
            {{query_width(all), all.head_dim},
             {kv_width(all), all.head_dim},
             {kv_width(all), all.head_dim}}};
  }

  void rotate(Recorder& recorder, Tensor from, Tensor to, const QkvSection& section,
              bool backward) const {
    const Batch& batch = recorder.batch();
    const bool positions{batch.positions};
    recorder.compute((backward ? "rope_backward" : "rope") + section.suffix,
                     kernels::Rope{.tokens = recorder.tokens(),
                                   .heads = section.heads,
                                   .kv_heads = section.kv_heads,
                                   .head_dim = shape_.head_dim,
                                   .rotary_dim = rotary_dim_,
                                   .starts = recorder.buffer(batch.cu_seqlens).elements(),
                                   .storage = recorder.storage(),
                                   .frequencies = frequencies_,
                                   .backward = backward,
                                   .first_token = batch.first_token,
                                   .positions = positions},
                     {.in = from,
                      .cu_seqlens = positions ? Tensor{} : batch.cu_seqlens,
                      .seq_idx = positions ? Tensor{} : batch.seq_idx,
                      .positions = batch.positions,
                      .out = to});
  }

  /// Each tensor rank has other heads, so the gradients are summands.
  Parameter norm_parameter(std::string name) const {
    return {std::move(name),
            {shape_.head_dim},
            norm_init(zero_centred_),
            false,
            partition_.replicated()};
  }
  kernels::HeadSizes head_sizes() const { return {shape_.heads, shape_.kv_heads, shape_.head_dim}; }

  void norm(Recorder& recorder, Tensor from, Tensor to) const {
    recorder.compute("qk_norm",
                     kernels::HeadRmsnormForward{.tokens = recorder.tokens(),
                                                 .sizes = head_sizes(),
                                                 .storage = recorder.storage(),
                                                 .eps = epsilon_,
                                                 .zero_centred = zero_centred_},
                     {.in = from,
                      .q_weight = recorder.parameter(q_norm_),
                      .k_weight = recorder.parameter(k_norm_),
                      .out = to});
  }

  /// @return gradient of the product
  Tensor norm_backward(Recorder& recorder, Tensor raw, Tensor dnormed) const {
    const std::int64_t n = recorder.tokens();
    const Tensor draw = recorder.scratch("dqkv_raw", {n, qkv_.outputs()});
    const kernels::HeadRmsnormBackward norm{.tokens = n,
                                            .sizes = head_sizes(),
                                            .storage = recorder.storage(),
                                            .eps = epsilon_,
                                            .accumulate = recorder.batch().accumulate,
                                            .zero_centred = zero_centred_};
    const Tensor workspace = recorder.workspace("qk_norm_workspace", norm.workspace_bytes());
    recorder.compute("qk_norm_backward", norm,
                     {.dout = dnormed,
                      .in = raw,
                      .q_weight = recorder.parameter(q_norm_),
                      .k_weight = recorder.parameter(k_norm_),
                      .din = draw,
                      .dq_weight = recorder.gradient(q_norm_),
                      .dk_weight = recorder.gradient(k_norm_),
                      .workspace = workspace});
    return draw;
  }

  std::string prefix_;  ///< of the names of what is kept of sequences
  std::int64_t width_;
  SharedRows rows_;
  Partition partition_;
  bool rope_;
  std::int64_t rotary_dim_;
  kernels::RopeFrequencies frequencies_;
  bool norms_;
  double epsilon_;
  bool zero_centred_;
  kernels::AttentionShape shape_;
  std::unique_ptr<ContextAttention> core_;
  Product qkv_;
  Product proj_;
  std::optional<Product> gate_;
  Parameter q_norm_, k_norm_;
  std::vector<Parameter> parameters_;
};

}  // namespace

std::unique_ptr<Mixer> make_attention(const MixerPlace& place) {
  return std::make_unique<Attention>(place);
}

}  // namespace stowage::layers
