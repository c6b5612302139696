#include "kernels/conv_scan/conv_scan.hpp"
#include "kernels/decode/ssd_step.hpp"
#include "kernels/fp8/quantise.hpp"
#include "kernels/ssd/ssd.hpp"
#include "layers/context/segment_exchange.hpp"
#include "layers/mixers/convolution.hpp"
#include "layers/mixers/gated_norm.hpp"
#include "layers/mixers/layer.hpp"
#include "layers/mixers/products.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {
namespace {

using kernels::ColumnsOf;

/// The Mamba-2 mixer (arXiv 2405.21060 section 7, design section 4).
///
/// in_proj gives rows [z | xBC | dt]; the conv gives rows [x | B | C]. Both are read in place, by
/// columns. The fused mixer has conv and scan as one op: the rows between are scratch, made again
/// in backward, and in_proj's output is what the scan's name stands for. With the fused forward
/// they are saved, for a backward by two ops.
///
/// Ranks that share sequences hand on the convolution's last rows and the scan's state, which the
/// fused op has no room for: they have conv and scan as two ops.
class Mamba final : public Mixer {
 public:
  explicit Mamba(const MixerPlace& place)
      : prefix_(place.prefix + ".mamba"),
        width_(place.config.width),
        rows_(place.ranks.shared_group(parallel::Group::tensor)),
        mamba_(part_of(place.config.mamba, place.ranks)),
        shape_(shape_of(mamba_)),
        segments_(place.ranks.shared_group(parallel::Group::context), shape_, "Mamba-2"),
        norm_(place.ranks.shared_group(parallel::Group::tensor),
              {place.prefix + ".mamba.norm.weight",
               {place.config.mamba.inner()},
               Init::ones,
               false,
               "dense",
               Partition(place.ranks.group(parallel::Group::tensor))
                   .cut(0, {place.config.mamba.inner()})},
              mamba_.groups, copies(place.config.mamba, place.ranks), place.config.norm_epsilon) {
    const Shape& all = place.config.mamba;
    const Partition partition(place.ranks.group(parallel::Group::tensor));
    const int copies = this->copies(all, place.ranks);
    const std::int64_t inner = all.inner(), heads = all.heads;
    const Block group(group_width(all), copies);
    // B and C of a group are on every rank that has heads of it.
    const auto repeat = [&](std::int64_t first) {
      return partition.repeat({first, first + 2 * group_width(mamba_)}, copies);
    };
    const auto parameter = [&](const char* name, std::vector<std::int64_t> shape, Init init,
                               bool decay, std::vector<Cut> cuts, const Repeat& repeated = {},
                               std::vector<Projection> projections = {}) {
      return Parameter{place.prefix + ".mamba." + name,
                       std::move(shape),
                       init,
                       decay,
                       "dense",
                       std::move(cuts),
                       repeated,
                       std::move(projections)};
    };
    const std::vector<Cut> by_head = partition.cut(0, {heads});
    const std::vector<Cut> by_channel = partition.cut(0, {inner, group, group});
    const Repeat channels = repeat(mamba_.inner());
    in_proj_ = {
        parameter("in_proj.weight", {all.projection(), width_}, Init::normal, true,
                  partition.cut(0, {inner, inner, group, group, heads}), repeat(2 * mamba_.inner()),
                  {{inner, all.head_dim},
                   {inner, all.head_dim},
                   {group_width(all), all.state},
                   {group_width(all), all.state},
                   {heads}}),
        place.formats()};
    out_proj_ = {parameter("out_proj.weight", {width_, inner}, Init::residual_normal, true,
                           partition.cut(1, {inner}), {}, {{width_}}),
                 place.formats()};
    convolution_ = Convolution(
        parameter("conv1d.weight", {all.conv_channels(), all.conv_width}, Init::uniform_taps, false,
                  by_channel, channels),
        parameter("conv1d.bias", {all.conv_channels()}, Init::zeros, false, by_channel, channels));
    a_log_ = parameter("A_log", {heads}, Init::a_log, false, by_head);
    d_ = parameter("D", {heads}, Init::ones, false, by_head);
    dt_bias_ = parameter("dt_bias", {heads}, Init::dt_bias, false, by_head);
    parameters_ = {out_proj_.weight,      norm_.weight(),      a_log_,         d_, dt_bias_,
                   convolution_.weight(), convolution_.bias(), in_proj_.weight};
  }

  const std::vector<Parameter>& parameters() const override { return parameters_; }
  Rounding input_rounding() const override { return in_proj_.rounding(); }

  Tensor forward(Recorder& recorder, Tensor mine) const override {
    const std::int64_t n = recorder.tokens();
    Saved& kept = recorder.kept<Saved>(*this);
    kept.x = mine;
    const AllRows x =
        rows_.gather_others(recorder, "x", in_proj_.shared_input(recorder, "x", mine, rows_));
    kept.zxbcdt = recorder.saved("in_proj_out", {n, mamba_.projection()},
                                 mamba_.form == Form::fused ? "mamba_ssm" : "mamba_conv");
    project(recorder, x, kept);
    if (mamba_.form != Form::fused)
      kept.xbc = recorder.saved("xBC", {n, mamba_.conv_channels()}, "mamba_ssm");
    if (mamba_.form == Form::separate) convolve(recorder, kept);
    kept.y = recorder.saved("scan_out", {n, mamba_.inner()}, "mamba_ssm");
    mamba_.form == Form::separate ? scan(recorder, kept) : conv_scan(recorder, kept);
    return finish(recorder, kept);
  }

  Tensor decode(Recorder& recorder, Tensor mine) const override {
    const std::int64_t n = recorder.tokens();
    Saved& kept = recorder.kept<Saved>(*this);
    kept.zxbcdt = recorder.scratch("in_proj_out", {n, mamba_.projection()});
    project(recorder, rows_.gather_others(recorder, "x", mine), kept);
    kept.xbc = recorder.scratch("xBC", {n, mamba_.conv_channels()});
    convolution_.step(recorder, prefix_, conv_input(kept.zxbcdt), kept.xbc);
    kept.y = recorder.scratch("scan_out", {n, mamba_.inner()});
    recorder.compute(
        "scan_step",
        kernels::SsdStep{.shape = shape_, .sequences = n, .storage = recorder.storage()},
        {.xbc = all(kept.xbc),
         .dt = dt(kept.zxbcdt),
         .a_log = recorder.parameter(a_log_),
         .d = recorder.parameter(d_),
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
    const Tensor x = rows_.gather(recorder, "x_again",
                                  in_proj_.shared_input(recorder, "x_again", kept.x, rows_));
    const Tensor dgated = recorder.scratch("dgated", {n, mamba_.inner()});
    for (const RowBlock& some : dy.blocks)
      out_proj_.backward_input(recorder, "out_proj_backward" + some.suffix, dy.of(some),
                               {dgated, some.rows});
    out_proj_.backward_weight(recorder, "out_proj_weight_backward", dy.all, kept.gated,
                              rows_.spare_weights());
    const Tensor dzxbcdt = recorder.scratch("din_proj_out", {n, mamba_.projection()});
    const Tensor amax = measure(recorder, in_proj_.rounding(), dzxbcdt);
    const Tensor dscan = norm_.backward(recorder, dgated, kept.y, kept.zxbcdt, dzxbcdt, amax);
    if (mamba_.form == Form::fused) {
      conv_scan_backward(recorder, kept, dscan, dzxbcdt);
    } else {
      const Tensor dxbc = scan_backward(recorder, kept, dscan, dzxbcdt);
      convolve_backward(recorder, kept, dxbc, dzxbcdt);
    }
    if (amax) {
      const std::int64_t others = mamba_.projection() - mamba_.inner();
      recorder.compute(
          "din_proj_out_amax",
          kernels::JoinLargestMagnitude{.rows = n, .width = others, .storage = recorder.storage()},
          {.x = {dzxbcdt, mamba_.inner(), others}, .amax = amax});
    }
    const Tensor dx = recorder.scratch("dx", {n, width_});
    in_proj_.backward_input(recorder, "in_proj_backward", dzxbcdt, dx);
    const SharedRows::Summands summands = rows_.send_partials(recorder, "dx_mine", dx);
    in_proj_.backward_weight(recorder, "in_proj_weight_backward", dzxbcdt, x);
    return rows_.sum(recorder, summands);
  }

 private:
  using Shape = ModelConfig::Mamba;
  using Form = Shape::Form;
  struct Saved {
    Tensor x, zxbcdt, xbc, y, gated;
    Tensor halo, initial_state;  ///< from the tokens of other ranks, if there are any
  };

  void project(Recorder& recorder, const AllRows& x, const Saved& kept) const {
    for (const RowBlock& some : x.blocks)
      in_proj_.forward(recorder, "in_proj" + some.suffix, x.of(some), {kept.zxbcdt, some.rows});
  }
  /// Norm, gate and out_proj.
  Tensor finish(Recorder& recorder, Saved& kept) const {
    kept.gated =
        norm_.forward(recorder, kept.y, kept.zxbcdt, "mamba_out_proj", out_proj_.rounding());
    return rows_.reduce_each(
        recorder, "out", "delta", width_, [&](const SomeRows& out, const RowBlock& some) {
          out_proj_.forward(recorder, "out_proj" + some.suffix, {kept.gated, some.rows}, out);
        });
  }
  /// Of the scan, of each sequence.
  execution::TensorInfo state(Precision precision, const DecodeShape& shape) const {
    return execution::one_buffer(prefix_ + ".state", precision.accumulation(),
                                 {shape.sequences, shape_.heads, shape_.head_dim, shape_.state},
                                 execution::Lifetime::sequence_state);
  }

  /// The heads and groups of this rank, and the form that it computes them in.
  static Shape part_of(Shape mamba, const parallel::Ranks& ranks) {
    const Partition partition(ranks.group(parallel::Group::tensor));
    if (ranks.group(parallel::Group::context).size() > 1) mamba.form = Form::separate;
    mamba.heads = partition.share(mamba.heads, "model.mamba_num_heads");
    mamba.groups = partition.share_or_copy(mamba.groups, "model.mamba_num_groups");
    return mamba;
  }

  /// Tensor ranks that have heads of the same group.
  static int copies(const Shape& all, const parallel::Ranks& ranks) {
    const Partition partition(ranks.group(parallel::Group::tensor));
    return partition.copies(all.groups, "model.mamba_num_groups");
  }

  static kernels::SsdShape shape_of(const Shape& mamba) {
    return {.heads = mamba.heads,
            .head_dim = mamba.head_dim,
            .groups = mamba.groups,
            .state = mamba.state,
            .chunk = mamba.chunk,
            .dt_min = mamba.dt_min,
            .dt_max = mamba.dt_max};
  }

  static std::int64_t group_width(const Shape& m) { return std::int64_t{m.groups} * m.state; }

  /// Columns [xBC] and [dt] of in_proj's output, or of its gradient, of which z's come first.
  ColumnsOf<Tensor> conv_input(Tensor zxbcdt) const {
    return {
        .whole = zxbcdt, .first = mamba_.inner(), .count = mamba_.conv_channels(), .beside = true};
  }
  ColumnsOf<Tensor> dt(Tensor zxbcdt) const {
    return {.whole = zxbcdt,
            .first = mamba_.inner() + mamba_.conv_channels(),
            .count = mamba_.heads,
            .beside = true};
  }
  ColumnsOf<Tensor> all(Tensor xbc) const { return {xbc, 0, mamba_.conv_channels()}; }

  /// What a scan reads, or convolution and scan as one.
  kernels::SsdInputs<Tensor> inputs(Recorder& recorder, const ColumnsOf<Tensor>& xbc,
                                    const Saved& kept) const {
    return {.xbc = xbc,
            .dt = dt(kept.zxbcdt),
            .a_log = recorder.parameter(a_log_),
            .d = recorder.parameter(d_),
            .dt_bias = recorder.parameter(dt_bias_),
            .seq_idx = recorder.batch().seq_idx,
            .initial_state = {}};
  }
  /// Their gradients; those of dt are columns of din_proj_out.
  kernels::SsdGradients<Tensor> gradients(Recorder& recorder, const ColumnsOf<Tensor>& dxbc,
                                          Tensor dzxbcdt) const {
    return {.dxbc = dxbc,
            .ddt = dt(dzxbcdt),
            .da_log = recorder.gradient(a_log_),
            .dd = recorder.gradient(d_),
            .ddt_bias = recorder.gradient(dt_bias_)};
  }

  void convolve(Recorder& recorder, Saved& kept) const {
    if (segments_.shared()) kept.halo = segments_.halo(recorder, conv_input(kept.zxbcdt));
    convolution_.forward(recorder, conv_input(kept.zxbcdt), kept.xbc, kept.halo);
  }

  /// The simple kernels of bf16 are another kind of op: their rate is another.
  std::string scan_name(const Recorder& recorder, std::string name) const {
    const bool simple =
        recorder.storage() == execution::Dtype::bf16 && !shape_.on_tensor_cores(recorder.storage());
    return simple ? name + "_simple" : name;
  }

  void scan(Recorder& recorder, Saved& kept) const {
    kernels::SsdInputs<Tensor> inputs = this->inputs(recorder, all(kept.xbc), kept);
    if (segments_.shared()) kept.initial_state = segments_.entering_state(recorder, inputs);
    inputs.initial_state = kept.initial_state;
    const kernels::SsdForward scan{.shape = shape_,
                                   .tokens = recorder.tokens(),
                                   .storage = recorder.storage(),
                                   .initial_state = segments_.shared()};
    recorder.compute(scan_name(recorder, "scan"), scan,
                     {.inputs = inputs,
                      .y = kept.y,
                      .workspace = recorder.workspace("scan_workspace", scan.workspace_bytes()),
                      .final_state = {},
                      .total_decay = {}});
  }

  void conv_scan(Recorder& recorder, const Saved& kept) const {
    const kernels::ConvScanForward op{.shape = shape_,
                                      .tokens = recorder.tokens(),
                                      .conv_width = mamba_.conv_width,
                                      .storage = recorder.storage(),
                                      .convolved = mamba_.form == Form::fused_forward};
    const Tensor workspace = recorder.workspace("conv_scan_workspace", op.workspace_bytes());
    recorder.compute("conv_scan", op,
                     {.conv_weight = recorder.parameter(convolution_.weight()),
                      .conv_bias = recorder.parameter(convolution_.bias()),
                      .inputs = inputs(recorder, conv_input(kept.zxbcdt), kept),
                      .y = kept.y,
                      .workspace = workspace,
                      .convolved = kept.xbc});
  }

  /// Writes the dt columns of din_proj_out; returns the gradient of xBC.
  Tensor scan_backward(Recorder& recorder, const Saved& kept, Tensor dscan, Tensor dzxbcdt) const {
    const Tensor dxbc = recorder.scratch("dxBC", {recorder.tokens(), mamba_.conv_channels()});
    const kernels::SsdBackward scan{.shape = shape_,
                                    .tokens = recorder.tokens(),
                                    .storage = recorder.storage(),
                                    .accumulate = recorder.batch().accumulate,
                                    .initial_state = segments_.shared(),
                                    .dfinal_state = segments_.shared()};
    const Tensor workspace = recorder.workspace("scan_backward_workspace", scan.workspace_bytes());
    kernels::SsdInputs<Tensor> inputs = this->inputs(recorder, all(kept.xbc), kept);
    const auto gradients = this->gradients(recorder, all(dxbc), dzxbcdt);
    Tensor dfinal_state;
    if (segments_.shared()) dfinal_state = segments_.entering_adjoint(recorder, dscan, inputs);
    inputs.initial_state = kept.initial_state;
    recorder.compute(scan_name(recorder, "scan_backward"), scan,
                     {.inputs = inputs,
                      .dy = dscan,
                      .gradients = gradients,
                      .workspace = workspace,
                      .dfinal_state = dfinal_state,
                      .dinitial_state = {}});
    return dxbc;
  }

  /// Writes the xBC columns of din_proj_out.
  void convolve_backward(Recorder& recorder, const Saved& kept, Tensor dxbc, Tensor dzxbcdt) const {
    const Tensor dhalo = convolution_.backward(recorder, conv_input(kept.zxbcdt), dxbc,
                                               conv_input(dzxbcdt), kept.halo);
    if (segments_.shared()) segments_.halo_gradient(recorder, dhalo, conv_input(dzxbcdt));
  }

  /// Writes the xBC and dt columns of din_proj_out.
  void conv_scan_backward(Recorder& recorder, const Saved& kept, Tensor dscan,
                          Tensor dzxbcdt) const {
    const kernels::ConvScanBackward op{.shape = shape_,
                                       .tokens = recorder.tokens(),
                                       .conv_width = mamba_.conv_width,
                                       .storage = recorder.storage(),
                                       .accumulate = recorder.batch().accumulate};
    const Tensor workspace =
        recorder.workspace("conv_scan_backward_workspace", op.workspace_bytes());
    recorder.compute("conv_scan_backward", op,
                     {.dy = dscan,
                      .conv_weight = recorder.parameter(convolution_.weight()),
                      .conv_bias = recorder.parameter(convolution_.bias()),
                      .inputs = inputs(recorder, conv_input(kept.zxbcdt), kept),
                      .dconv_weight = recorder.gradient(convolution_.weight()),
                      .dconv_bias = recorder.gradient(convolution_.bias()),
                      .gradients = gradients(recorder, conv_input(dzxbcdt), dzxbcdt),
                      .workspace = workspace});
  }

  std::string prefix_;  ///< of the names of what is kept of sequences
  std::int64_t width_;
  SharedRows rows_;
  Shape mamba_;
  kernels::SsdShape shape_;
  SegmentExchange<kernels::SsdScan> segments_;
  GatedNorm norm_;
  Product in_proj_;
  Product out_proj_;
  Convolution convolution_;
  Parameter a_log_, d_, dt_bias_;
  std::vector<Parameter> parameters_;
};

}  // namespace

std::unique_ptr<Mixer> make_mamba(const MixerPlace& place) {
  return std::make_unique<Mamba>(place);
}

}  // namespace stowage::layers
