#include "kernels/gated_delta/gated_delta.hpp"

#include <algorithm>

#include "kernels/decode/gated_delta_step.hpp"
#include "kernels/gated_delta/gated_head_norm.hpp"
#include "layers/context/segment_exchange.hpp"
#include "layers/mixers/convolution.hpp"
#include "layers/mixers/layer.hpp"
#include "layers/mixers/products.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {
namespace {

using kernels::ColumnsOf;

/// The gated DeltaNet mixer (arXiv 2412.06464, section 3.3; details of Qwen3-Next).
///
/// in_proj gives rows [z | q k v | b | a]; the conv gives rows [q | k | v]. Both are read in place,
/// by columns. With decays of channels (Kimi delta attention, arXiv 2510.26692) a is a product of
/// low rank besides, decay_up of decay_down. Tensor ranks have heads of v, and the heads of q and k
/// that these read; each of them computes decay_down.
class GatedDelta final : public Mixer {
 public:
  explicit GatedDelta(const MixerPlace& place)
      : prefix_(place.prefix + ".delta"),
        width_(place.config.width),
        epsilon_(place.config.norm_epsilon),
        rows_(place.ranks.shared_group(parallel::Group::tensor)),
        delta_(part_of(place.config.delta, place.tensor())),
        shape_{.key_heads = delta_.key_heads,
               .value_heads = delta_.value_heads,
               .key_dim = delta_.key_head_dim,
               .value_dim = delta_.value_head_dim,
               .channel_decay = delta_.channel_decay},
        segments_(place.ranks.shared_group(parallel::Group::context), shape_, "gated DeltaNet") {
    const Shape& all = place.config.delta;
    const Partition partition = place.tensor();
    const int copies = partition.copies(all.key_heads, kKeyHeads);
    const std::int64_t values = all.values(), heads = all.value_heads;
    const Block keys(all.keys(), copies);
    // q and k of a head are on every rank that has heads of v which read it.
    const auto repeat = [&](std::int64_t first) {
      return partition.repeat({first, first + 2 * delta_.keys()}, copies);
    };
    const auto parameter = [&](const char* name, std::vector<std::int64_t> shape, Init init,
                               bool decay, std::vector<Cut> cuts, const Repeat& repeated = {},
                               std::vector<Projection> projections = {}) {
      return Parameter{place.prefix + ".delta." + name,
                       std::move(shape),
                       init,
                       decay,
                       "dense",
                       std::move(cuts),
                       repeated,
                       std::move(projections)};
    };
    std::vector<Block> rows = {values, keys, keys, values, heads};
    std::vector<Projection> projections = {{values, all.value_head_dim},
                                           {all.keys(), all.key_head_dim},
                                           {all.keys(), all.key_head_dim},
                                           {values, all.value_head_dim},
                                           {heads}};
    if (all.channel_decay) {
      const std::int64_t rank = all.decay_rank;
      decay_down_.weight =
          parameter("decay_down.weight", {rank, width_}, Init::normal, true, {}, {}, {{rank}});
      decay_down_.weight.group = partition.replicated();
      decay_up_.weight =
          parameter("decay_up.weight", {all.decays(), rank}, Init::normal, true,
                    partition.cut(0, {all.decays()}), {}, {{all.decays(), all.key_head_dim}});
    } else {
      rows.emplace_back(heads);
      projections.push_back({heads});
    }
    in_proj_ = {parameter("in_proj.weight", {all.projection(), width_}, Init::normal, true,
                          partition.cut(0, rows), repeat(delta_.values()), std::move(projections)),
                place.formats()};
    out_proj_ = {parameter("out_proj.weight", {width_, values}, Init::residual_normal, true,
                           partition.cut(1, {values}), {}, {{width_}}),
                 place.formats()};
    convolution_ = Convolution(parameter("conv1d.weight", {all.conv_channels(), all.conv_width},
                                         Init::uniform_taps, false,
                                         partition.cut(0, {keys, keys, values}), repeat(0)));
    a_log_ = parameter("A_log", {heads}, Init::a_log, false, partition.cut(0, {heads}));
    dt_bias_ = parameter("dt_bias", {all.decays()}, Init::dt_bias, false,
                         partition.cut(0, {all.decays()}));
    norm_ = parameter("norm.weight", {all.value_head_dim}, Init::ones, false, {});
    norm_.group = partition.replicated();
    parameters_ = {out_proj_.weight, norm_, a_log_, dt_bias_};
    if (all.channel_decay) parameters_.push_back(decay_up_.weight);
    parameters_.push_back(convolution_.weight());
    if (all.channel_decay) parameters_.push_back(decay_down_.weight);
    parameters_.push_back(in_proj_.weight);
  }

  const std::vector<Parameter>& parameters() const override { return parameters_; }
  Rounding input_rounding() const override {
    const Rounding rounding = in_proj_.rounding();
    // The projection to decays reads the values once more in backward.
    return delta_.channel_decay ? std::min(rounding, Rounding::measured) : rounding;
  }

  Tensor forward(Recorder& recorder, Tensor mine) const override {
    const std::int64_t n = recorder.tokens();
    Saved& kept = recorder.kept<Saved>(*this);
    kept.x = mine;
    const AllRows x = rows_.gather_others(recorder, "x", shared_input(recorder, "x", mine));
    kept.in_proj = recorder.saved("in_proj_out", {n, delta_.projection()}, "delta_conv");
    if (delta_.channel_decay)
      kept.narrow = recorder.saved("decay_down_out", {n, delta_.decay_rank}, "delta_conv");
    project(recorder, x, kept);
    kept.qkv = recorder.saved("qkv", {n, delta_.conv_channels()}, "delta_rule");
    convolve(recorder, kept);
    if (delta_.channel_decay) {
      kept.a = recorder.saved("decay_up_out", {n, delta_.decays()}, "delta_rule");
      decay_up_.forward(recorder, "decay_up", kept.narrow, kept.a);
    }
    kept.y = recorder.saved("rule_out", {n, delta_.values()}, "delta_rule");
    rule(recorder, kept);
    return finish(recorder, kept);
  }

  Tensor decode(Recorder& recorder, Tensor mine) const override {
    const std::int64_t n = recorder.tokens();
    Saved& kept = recorder.kept<Saved>(*this);
    kept.in_proj = recorder.scratch("in_proj_out", {n, delta_.projection()});
    if (delta_.channel_decay) {
      kept.narrow = recorder.scratch("decay_down_out", {n, delta_.decay_rank});
      kept.a = recorder.scratch("decay_up_out", {n, delta_.decays()});
    }
    project(recorder, rows_.gather_others(recorder, "x", mine), kept);
    kept.qkv = recorder.scratch("qkv", {n, delta_.conv_channels()});
    convolution_.step(recorder, prefix_, conv_input(kept.in_proj), kept.qkv);
    if (delta_.channel_decay) decay_up_.forward(recorder, "decay_up", kept.narrow, kept.a);
    kept.y = recorder.scratch("rule_out", {n, delta_.values()});
    recorder.compute(
        "rule_step",
        kernels::GatedDeltaStep{.shape = shape_, .sequences = n, .storage = recorder.storage()},
        {.qkv = all(kept.qkv),
         .ba = gates(kept.in_proj),
         .a = kept.a,
         .a_log = recorder.parameter(a_log_),
         .dt_bias = recorder.parameter(dt_bias_),
         .positions = recorder.batch().positions,
         .state = recorder.sequence_state(state({recorder.storage()}, recorder.batch().decode)),
         .y = kept.y});
    return finish(recorder, kept);
  }
  std::vector<execution::TensorInfo> sequence_states(Precision precision,
                                                     const DecodeShape& shape) const override {
    return {convolution_.rows(prefix_, precision, shape), state(precision, shape)};
  }

  Tensor backward(Recorder& recorder, Tensor dy_mine) const override {
    const std::int64_t n = recorder.tokens();
    const Saved& kept = recorder.kept<Saved>(*this);
    const AllRows dy = rows_.gather_each(recorder, "dy",
                                         out_proj_.shared_gradient(recorder, "dy", dy_mine, rows_));
    const Tensor x = rows_.gather(recorder, "x_again", shared_input(recorder, "x_again", kept.x));
    const Tensor dgated = recorder.scratch("dgated", {n, delta_.values()});
    for (const RowBlock& some : dy.blocks)
      out_proj_.backward_input(recorder, "out_proj_backward" + some.suffix, dy.of(some),
                               {dgated, some.rows});
    out_proj_.backward_weight(recorder, "out_proj_weight_backward", dy.all, kept.gated,
                              rows_.spare_weights());
    const Tensor din_proj = recorder.scratch("din_proj_out", {n, delta_.projection()});
    const Tensor drule = norm_backward(recorder, kept, dgated, din_proj);
    const Tensor da =
        delta_.channel_decay ? recorder.scratch("ddecay_up_out", {n, delta_.decays()}) : Tensor();
    const Tensor dqkv = rule_backward(recorder, kept, drule, din_proj, da);
    const Tensor dnarrow = delta_.channel_decay ? decay_up_backward(recorder, kept, da) : Tensor();
    convolve_backward(recorder, kept, dqkv, din_proj);
    const Tensor dx = recorder.scratch("dx", {n, width_});
    in_proj_.backward_input(recorder, "in_proj_backward", din_proj, dx);
    if (delta_.channel_decay)
      decay_down_.backward_input(recorder, "decay_down_backward", dnarrow, dx, true);
    const SharedRows::Summands summands = rows_.send_partials(recorder, "dx_mine", dx);
    if (delta_.channel_decay)
      decay_down_.backward_weight(recorder, "decay_down_weight_backward", dnarrow, x);
    in_proj_.backward_weight(recorder, "in_proj_weight_backward", din_proj, x);
    return rows_.sum(recorder, summands);
  }

 private:
  using Shape = ModelConfig::GatedDelta;
  static constexpr const char* kKeyHeads = "model.delta_num_key_heads";
  struct Saved {
    Tensor x, in_proj, qkv, y, gated;
    Tensor narrow, a;            ///< of decays of channels: decay_down's result and decay_up's
    Tensor halo, initial_state;  ///< from the tokens of other ranks, if there are any
  };

  /// The projection to decays takes values.
  Tensor shared_input(Recorder& recorder, const std::string& name, Tensor x) const {
    return delta_.channel_decay ? x : in_proj_.shared_input(recorder, name, x, rows_);
  }
  void project(Recorder& recorder, const AllRows& x, const Saved& kept) const {
    for (const RowBlock& some : x.blocks)
      in_proj_.forward(recorder, "in_proj" + some.suffix, x.of(some), {kept.in_proj, some.rows});
    if (!delta_.channel_decay) return;
    for (const RowBlock& some : x.blocks)
      decay_down_.forward(recorder, "decay_down" + some.suffix, x.of(some),
                          {kept.narrow, some.rows});
  }
  /// Norm, gate and out_proj.
  Tensor finish(Recorder& recorder, Saved& kept) const {
    const std::int64_t n = recorder.tokens();
    kept.gated = recorder.saved("gated", {n, delta_.values()}, "delta_out_proj");
    recorder.compute(
        "gated_norm",
        kernels::GatedHeadNormForward{.tokens = n,
                                      .heads = delta_.value_heads,
                                      .head_dim = delta_.value_head_dim,
                                      .storage = recorder.storage(),
                                      .eps = epsilon_},
        {.y = kept.y, .z = z(kept.in_proj), .w = recorder.parameter(norm_), .out = kept.gated});
    return rows_.reduce_each(
        recorder, "out", "delta", width_, [&](const SomeRows& out, const RowBlock& some) {
          out_proj_.forward(recorder, "out_proj" + some.suffix, {kept.gated, some.rows}, out);
        });
  }
  /// Of the rule, of each sequence.
  execution::TensorInfo state(Precision precision, const DecodeShape& shape) const {
    return execution::one_buffer(
        prefix_ + ".state", precision.accumulation(),
        {shape.sequences, shape_.value_heads, shape_.value_dim, shape_.key_dim},
        execution::Lifetime::sequence_state);
  }

  /// The heads of this rank.
  static Shape part_of(Shape delta, const Partition& partition) {
    delta.value_heads = partition.share(delta.value_heads, "model.delta_num_value_heads");
    delta.key_heads = partition.share_or_copy(delta.key_heads, kKeyHeads);
    return delta;
  }

  /// Columns [z], [q k v] and [b a] of in_proj's output, or of its gradient, of which z's come
  /// first.
  ColumnsOf<Tensor> z(Tensor in_proj) const { return {in_proj, 0, delta_.values()}; }
  ColumnsOf<Tensor> conv_input(Tensor in_proj) const {
    return {.whole = in_proj,
            .first = delta_.values(),
            .count = delta_.conv_channels(),
            .beside = true};
  }
  ColumnsOf<Tensor> gates(Tensor in_proj) const {
    return {.whole = in_proj,
            .first = delta_.values() + delta_.conv_channels(),
            .count = delta_.gates(),
            .beside = true};
  }
  ColumnsOf<Tensor> all(Tensor qkv) const { return {qkv, 0, delta_.conv_channels()}; }

  /// Of an op of the rule: decays of channels have other kernels, whose rate is another.
  std::string rule_name(const std::string& name) const {
    return delta_.channel_decay ? "channel_" + name : name;
  }
  kernels::GatedDeltaInputs<Tensor> inputs(Recorder& recorder, const Saved& kept) const {
    return {.qkv = all(kept.qkv),
            .ba = gates(kept.in_proj),
            .a = kept.a,
            .a_log = recorder.parameter(a_log_),
            .dt_bias = recorder.parameter(dt_bias_),
            .seq_idx = recorder.batch().seq_idx,
            .initial_state = {}};
  }

  void convolve(Recorder& recorder, Saved& kept) const {
    if (segments_.shared()) kept.halo = segments_.halo(recorder, conv_input(kept.in_proj));
    convolution_.forward(recorder, conv_input(kept.in_proj), kept.qkv, kept.halo);
  }

  void rule(Recorder& recorder, Saved& kept) const {
    kernels::GatedDeltaInputs<Tensor> inputs = this->inputs(recorder, kept);
    if (segments_.shared()) kept.initial_state = segments_.entering_state(recorder, inputs);
    inputs.initial_state = kept.initial_state;
    const kernels::GatedDeltaForward op{.shape = shape_,
                                        .tokens = recorder.tokens(),
                                        .storage = recorder.storage(),
                                        .initial_state = segments_.shared()};
    recorder.compute(rule_name("rule"), op,
                     {.inputs = inputs,
                      .y = kept.y,
                      .workspace = recorder.workspace("rule_workspace", op.workspace_bytes()),
                      .final_state = {}});
  }

  /// Writes the z columns of din_proj_out; returns the gradient of the rule's output.
  Tensor norm_backward(Recorder& recorder, const Saved& kept, Tensor dgated,
                       Tensor din_proj) const {
    const std::int64_t n = recorder.tokens();
    const Tensor drule = recorder.scratch("drule_out", {n, delta_.values()});
    const kernels::GatedHeadNormBackward norm{.tokens = n,
                                              .heads = delta_.value_heads,
                                              .head_dim = delta_.value_head_dim,
                                              .storage = recorder.storage(),
                                              .eps = epsilon_,
                                              .accumulate = recorder.batch().accumulate};
    const Tensor workspace = recorder.workspace("gated_norm_workspace", norm.workspace_bytes());
    recorder.compute("gated_norm_backward", norm,
                     {.dout = dgated,
                      .y = kept.y,
                      .z = z(kept.in_proj),
                      .w = recorder.parameter(norm_),
                      .dy = drule,
                      .dz = z(din_proj),
                      .dw = recorder.gradient(norm_),
                      .workspace = workspace});
    return drule;
  }

  /// Writes the b and a columns of din_proj_out, or da; returns the gradient of qkv.
  Tensor rule_backward(Recorder& recorder, const Saved& kept, Tensor drule, Tensor din_proj,
                       Tensor da) const {
    const Tensor dqkv = recorder.scratch("dqkv", {recorder.tokens(), delta_.conv_channels()});
    const kernels::GatedDeltaBackward op{.shape = shape_,
                                         .tokens = recorder.tokens(),
                                         .storage = recorder.storage(),
                                         .accumulate = recorder.batch().accumulate,
                                         .initial_state = segments_.shared(),
                                         .dfinal_state = segments_.shared()};
    const Tensor workspace = recorder.workspace("rule_backward_workspace", op.workspace_bytes());
    kernels::GatedDeltaInputs<Tensor> inputs = this->inputs(recorder, kept);
    Tensor dfinal_state;
    if (segments_.shared()) dfinal_state = segments_.entering_adjoint(recorder, drule, inputs);
    inputs.initial_state = kept.initial_state;
    recorder.compute(rule_name("rule_backward"), op,
                     {.inputs = inputs,
                      .dy = drule,
                      .gradients = {.dqkv = all(dqkv),
                                    .dba = gates(din_proj),
                                    .da = da,
                                    .da_log = recorder.gradient(a_log_),
                                    .ddt_bias = recorder.gradient(dt_bias_)},
                      .workspace = workspace,
                      .dfinal_state = dfinal_state,
                      .dinitial_state = {}});
    return dqkv;
  }

  /// Returns the gradient of decay_down's result, of this rank's heads.
  Tensor decay_up_backward(Recorder& recorder, const Saved& kept, Tensor da) const {
    const Tensor dnarrow =
        recorder.scratch("ddecay_down_out", {recorder.tokens(), delta_.decay_rank});
    decay_up_.backward_input(recorder, "decay_up_backward", da, dnarrow);
    decay_up_.backward_weight(recorder, "decay_up_weight_backward", da, kept.narrow);
    return dnarrow;
  }

  /// Writes the q, k and v columns of din_proj_out.
  void convolve_backward(Recorder& recorder, const Saved& kept, Tensor dqkv,
                         Tensor din_proj) const {
    const Tensor dhalo = convolution_.backward(recorder, conv_input(kept.in_proj), dqkv,
                                               conv_input(din_proj), kept.halo);
    if (segments_.shared()) segments_.halo_gradient(recorder, dhalo, conv_input(din_proj));
  }

  std::string prefix_;  ///< of the names of what is kept of sequences
  std::int64_t width_;
  double epsilon_;
  SharedRows rows_;
  Shape delta_;
  kernels::GatedDeltaShape shape_;
  SegmentExchange<kernels::GatedDeltaScan> segments_;
  Product in_proj_, out_proj_;
  Product decay_down_, decay_up_;  ///< of decays of channels
  Convolution convolution_;
  Parameter a_log_, dt_bias_, norm_;
  std::vector<Parameter> parameters_;
};

}  // namespace

std::unique_ptr<Mixer> make_gated_delta(const MixerPlace& place) {
  return std::make_unique<GatedDelta>(place);
}

}  // namespace stowage::layers
