#include "kernels/conv1d/conv1d.hpp"
#include "kernels/conv_scan/conv_scan.hpp"
#include "kernels/ssd/ssd.hpp"
#include "layers/context/segment_exchange.hpp"
#include "layers/mixers/gated_norm.hpp"
#include "layers/mixers/layer.hpp"
#include "layers/mixers/products.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {
namespace {

using Views = std::span<const execution::View>;
using kernels::Columns;
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
  Mamba(const ModelConfig& config, const parallel::Ranks& ranks, const std::string& prefix)
      : width_(config.width),
        rows_(ranks.shared_group(parallel::Group::tensor)),
        mamba_(part_of(config.mamba, ranks)),
        shape_(shape_of(mamba_)),
        segments_(ranks.shared_group(parallel::Group::context), shape_),
        norm_(ranks.shared_group(parallel::Group::tensor),
              {prefix + ".mamba.norm.weight",
               {config.mamba.inner()},
               Init::ones,
               false,
               "dense",
               Partition(ranks.group(parallel::Group::tensor)).cut(0, {config.mamba.inner()})},
              mamba_.groups, copies(config.mamba, ranks), config.norm_epsilon) {
    const Shape& all = config.mamba;
    const Partition partition(ranks.group(parallel::Group::tensor));
    const int copies = this->copies(all, ranks);
    const std::int64_t inner = all.inner(), heads = all.heads;
    const Block group(group_width(all), copies);
    // B and C of a group are on every rank that has heads of it.
    const auto repeat = [&](std::int64_t first) {
      return partition.repeat({first, first + 2 * group_width(mamba_)}, copies);
    };
    const auto parameter = [&](const char* name, std::vector<std::int64_t> shape, Init init,
                               bool decay, std::vector<Cut> cuts, const Repeat& repeated = {}) {
      return Parameter{prefix + ".mamba." + name, std::move(shape), init, decay, "dense",
                       std::move(cuts),           repeated};
    };
    const std::vector<Cut> by_head = partition.cut(0, {heads});
    const std::vector<Cut> by_channel = partition.cut(0, {inner, group, group});
    const Repeat channels = repeat(mamba_.inner());
    in_proj_ = {parameter("in_proj.weight", {all.projection(), width_}, Init::normal, true,
                          partition.cut(0, {inner, inner, group, group, heads}),
                          repeat(2 * mamba_.inner()))};
    out_proj_ = {parameter("out_proj.weight", {width_, inner}, Init::residual_normal, true,
                           partition.cut(1, {inner}))};
    conv_weight_ = parameter("conv1d.weight", {all.conv_channels(), all.conv_width},
                             Init::uniform_taps, false, by_channel, channels);
    conv_bias_ =
        parameter("conv1d.bias", {all.conv_channels()}, Init::zeros, false, by_channel, channels);
    a_log_ = parameter("A_log", {heads}, Init::a_log, false, by_head);
    d_ = parameter("D", {heads}, Init::ones, false, by_head);
    dt_bias_ = parameter("dt_bias", {heads}, Init::dt_bias, false, by_head);
    parameters_ = {out_proj_.weight, norm_.weight(), a_log_,     d_,
                   dt_bias_,         conv_weight_,   conv_bias_, in_proj_.weight};
  }

  const std::vector<Parameter>& parameters() const override { return parameters_; }

  Tensor forward(Recorder& recorder, Tensor mine) const override {
    const std::int64_t n = recorder.tokens();
    Saved& kept = recorder.kept<Saved>(*this);
    kept.x = mine;
    const AllRows x = rows_.gather_others(recorder, "x", mine);
    kept.zxbcdt = recorder.saved("in_proj_out", {n, mamba_.projection()},
                                 mamba_.form == Form::fused ? "mamba_ssm" : "mamba_conv");
    for (const RowBlock& some : x.blocks)
      in_proj_.forward(recorder, "in_proj" + some.suffix, x.of(some), {kept.zxbcdt, some.rows});
    if (mamba_.form != Form::fused)
      kept.xbc = recorder.saved("xBC", {n, mamba_.conv_channels()}, "mamba_ssm");
    if (mamba_.form == Form::separate) convolve(recorder, kept);
    kept.y = recorder.saved("scan_out", {n, mamba_.inner()}, "mamba_ssm");
    mamba_.form == Form::separate ? scan(recorder, kept) : conv_scan(recorder, kept);
    kept.gated = norm_.forward(recorder, kept.y, kept.zxbcdt, "mamba_out_proj");
    return rows_.reduce_each(
        recorder, "out", "delta", width_, [&](const SomeRows& out, const RowBlock& some) {
          out_proj_.forward(recorder, "out_proj" + some.suffix, {kept.gated, some.rows}, out);
        });
  }

  Tensor backward(Recorder& recorder, Tensor dy_mine) const override {
    const std::int64_t n = recorder.tokens();
    const Saved& kept = recorder.kept<Saved>(*this);
    const AllRows dy = rows_.gather_each(recorder, "dy", dy_mine);
    const Tensor x = rows_.gather(recorder, "x_again", kept.x);
    const Tensor dgated = recorder.scratch("dgated", {n, mamba_.inner()});
    for (const RowBlock& some : dy.blocks)
      out_proj_.backward_input(recorder, "out_proj_backward" + some.suffix, dy.of(some),
                               {dgated, some.rows});
    out_proj_.backward_weight(recorder, "out_proj_weight_backward", dy.all, kept.gated,
                              rows_.spare_weights());
    const Tensor dzxbcdt = recorder.scratch("din_proj_out", {n, mamba_.projection()});
    const Tensor dscan = norm_.backward(recorder, dgated, kept.y, kept.zxbcdt, dzxbcdt);
    if (mamba_.form == Form::fused) {
      conv_scan_backward(recorder, kept, dscan, dzxbcdt);
    } else {
      const Tensor dxbc = scan_backward(recorder, kept, dscan, dzxbcdt);
      convolve_backward(recorder, kept, dxbc, dzxbcdt);
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
    kernels::SsdShape shape;
    shape.heads = mamba.heads;
    shape.head_dim = mamba.head_dim;
    shape.groups = mamba.groups;
    shape.state = mamba.state;
    shape.chunk = mamba.chunk;
    shape.dt_min = mamba.dt_min;
    shape.dt_max = mamba.dt_max;
    return shape;
  }

  static std::int64_t group_width(const Shape& m) { return std::int64_t{m.groups} * m.state; }
  static Columns conv_input(const Shape& m, const execution::View& zxbcdt) {
    return {zxbcdt, m.inner(), m.conv_channels()};
  }
  static Columns dt(const Shape& m, const execution::View& zxbcdt) {
    return {zxbcdt, m.inner() + m.conv_channels(), m.heads};
  }
  static Columns scan_x(const Shape& m, const execution::View& xbc) { return {xbc, 0, m.inner()}; }
  static Columns scan_b(const Shape& m, const execution::View& xbc) {
    return {xbc, m.inner(), group_width(m)};
  }
  static Columns scan_c(const Shape& m, const execution::View& xbc) {
    return {xbc, m.inner() + group_width(m), group_width(m)};
  }

  /// Columns of in_proj's output or its gradient, of which z's come first.
  ColumnsOf<Tensor> conv_input(Tensor zxbcdt) const {
    return {zxbcdt, mamba_.inner(), mamba_.conv_channels(), true};
  }

  void convolve(Recorder& recorder, Saved& kept) const {
    if (segments_.shared()) kept.halo = segments_.halo(recorder, conv_input(kept.zxbcdt));
    recorder.compute("conv1d",
                     kernels::Conv1dForward{.tokens = recorder.tokens(),
                                            .channels = mamba_.conv_channels(),
                                            .width = mamba_.conv_width,
                                            .storage = recorder.storage(),
                                            .halo = static_cast<bool>(kept.halo)},
                     {.x = conv_input(kept.zxbcdt),
                      .w = recorder.parameter(conv_weight_),
                      .b = recorder.parameter(conv_bias_),
                      .seq_idx = recorder.batch().seq_idx,
                      .y = kept.xbc,
                      .halo = kept.halo});
  }

  /// What only some ranks have.
  static execution::View optional(Views v, std::size_t index) {
    return index < v.size() ? v[index] : execution::View{};
  }

  /// What a scan reads, the first of the op's uses.
  SegmentExchange::ScanInputs scan_inputs(Recorder& recorder, const Saved& kept) const {
    return {{read(kept.xbc), read(kept.zxbcdt), read(recorder.parameter(a_log_)),
             read(recorder.parameter(d_)), read(recorder.parameter(dt_bias_)),
             read(recorder.batch().seq_idx)},
            [m = mamba_](Views v) {
              return kernels::SsdInputOperands{.x = scan_x(m, v[0]),
                                               .dt = dt(m, v[1]),
                                               .b = scan_b(m, v[0]),
                                               .c = scan_c(m, v[0]),
                                               .a_log = v[2],
                                               .d = v[3],
                                               .dt_bias = v[4],
                                               .seq_idx = v[5]};
            }};
  }

  void scan(Recorder& recorder, Saved& kept) const {
    const std::int64_t n = recorder.tokens();
    const SegmentExchange::ScanInputs inputs = scan_inputs(recorder, kept);
    if (segments_.shared()) kept.initial_state = segments_.entering_state(recorder, inputs);
    std::vector<Use> uses = inputs.uses;
    const Tensor workspace = recorder.workspace(
        "scan_workspace", kernels::ssd_forward_workspace_bytes(shape_, n, recorder.storage()));
    uses.push_back(write(kept.y));
    uses.push_back(write(workspace));
    if (kept.initial_state) uses.push_back(read(kept.initial_state));
    recorder.compute("scan", kernels::ssd_forward_cost(shape_, n, recorder.storage()),
                     std::move(uses),
                     [of = inputs.of, shape = shape_](execution::Queue& q, Views v) {
                       kernels::ssd_forward(
                           q, shape, {.inputs = of(v), .y = v[6], .workspace = v[7]},
                           {.initial_state = optional(v, 8), .final_state = {}, .total_decay = {}});
                     });
  }

  void conv_scan(Recorder& recorder, const Saved& kept) const {
    const std::int64_t n = recorder.tokens();
    const bool keeps = mamba_.form == Form::fused_forward;
    const Tensor workspace = recorder.workspace(
        "conv_scan_workspace",
        kernels::conv_scan_forward_workspace_bytes(shape_, n, recorder.storage(), keeps));
    std::vector<Use> uses = {read(kept.zxbcdt),
                             read(recorder.parameter(conv_weight_)),
                             read(recorder.parameter(conv_bias_)),
                             read(recorder.parameter(a_log_)),
                             read(recorder.parameter(d_)),
                             read(recorder.parameter(dt_bias_)),
                             read(recorder.batch().seq_idx),
                             write(kept.y),
                             write(workspace)};
    if (keeps) uses.push_back(write(kept.xbc));
    recorder.compute(
        "conv_scan",
        kernels::conv_scan_forward_cost(shape_, n, recorder.storage(), mamba_.conv_width),
        std::move(uses), [m = mamba_, shape = shape_, keeps](execution::Queue& q, Views v) {
          kernels::conv_scan_forward(q, shape,
                                     {.xbc = conv_input(m, v[0]),
                                      .dt = dt(m, v[0]),
                                      .parameters = {.conv_weight = v[1],
                                                     .conv_bias = v[2],
                                                     .a_log = v[3],
                                                     .d = v[4],
                                                     .dt_bias = v[5]},
                                      .seq_idx = v[6],
                                      .convolved = keeps ? v[9] : execution::View{},
                                      .y = v[7],
                                      .workspace = v[8]});
        });
  }

  /// Writes the dt columns of din_proj_out; returns the gradient of xBC.
  Tensor scan_backward(Recorder& recorder, const Saved& kept, Tensor dscan, Tensor dzxbcdt) const {
    const std::int64_t n = recorder.tokens();
    const Tensor dxbc = recorder.scratch("dxBC", {n, mamba_.conv_channels()});
    const Tensor workspace =
        recorder.workspace("scan_backward_workspace",
                           kernels::ssd_backward_workspace_bytes(shape_, n, recorder.storage()));
    const bool accumulate = recorder.batch().accumulate;
    const SegmentExchange::ScanInputs inputs = scan_inputs(recorder, kept);
    std::vector<Use> uses = inputs.uses;
    for (const Use& use :
         {read(dscan), write(dxbc), update(dzxbcdt), recorder.into(recorder.gradient(a_log_)),
          recorder.into(recorder.gradient(d_)), recorder.into(recorder.gradient(dt_bias_)),
          write(workspace)})
      uses.push_back(use);
    if (segments_.shared()) {
      uses.push_back(read(kept.initial_state));
      uses.push_back(read(segments_.entering_adjoint(recorder, dscan, inputs)));
    }
    recorder.compute(
        "scan_backward", kernels::ssd_backward_cost(shape_, n, recorder.storage()), std::move(uses),
        [m = mamba_, of = inputs.of, shape = shape_, accumulate](execution::Queue& q, Views v) {
          kernels::ssd_backward(q, shape,
                                {.dy = v[6],
                                 .inputs = of(v),
                                 .dx = scan_x(m, v[7]),
                                 .ddt = dt(m, v[8]),
                                 .db = scan_b(m, v[7]),
                                 .dc = scan_c(m, v[7]),
                                 .da_log = v[9],
                                 .dd = v[10],
                                 .ddt_bias = v[11],
                                 .workspace = v[12]},
                                accumulate,
                                {.initial_state = optional(v, 13),
                                 .dfinal_state = optional(v, 14),
                                 .dinitial_state = {}});
        });
    return dxbc;
  }

  /// Writes the xBC columns of din_proj_out.
  void convolve_backward(Recorder& recorder, const Saved& kept, Tensor dxbc, Tensor dzxbcdt) const {
    const kernels::Conv1dBackward conv{.tokens = recorder.tokens(),
                                       .channels = mamba_.conv_channels(),
                                       .width = mamba_.conv_width,
                                       .storage = recorder.storage(),
                                       .accumulate = recorder.batch().accumulate,
                                       .halo = static_cast<bool>(kept.halo)};
    const Tensor workspace = recorder.workspace("conv_workspace", conv.workspace_bytes());
    Tensor dhalo;
    if (conv.halo) dhalo = recorder.scratch("dhalo", {kernels::kConv1dHalo, conv.channels});
    recorder.compute("conv1d_backward", conv,
                     {.dy = dxbc,
                      .x = conv_input(kept.zxbcdt),
                      .w = recorder.parameter(conv_weight_),
                      .b = recorder.parameter(conv_bias_),
                      .seq_idx = recorder.batch().seq_idx,
                      .dx = conv_input(dzxbcdt),
                      .dw = recorder.gradient(conv_weight_),
                      .db = recorder.gradient(conv_bias_),
                      .workspace = workspace,
                      .halo = kept.halo,
                      .dhalo = dhalo});
    if (segments_.shared()) segments_.halo_gradient(recorder, dhalo, conv_input(dzxbcdt));
  }

  /// Writes the xBC and dt columns of din_proj_out.
  void conv_scan_backward(Recorder& recorder, const Saved& kept, Tensor dscan,
                          Tensor dzxbcdt) const {
    const std::int64_t n = recorder.tokens();
    const Tensor workspace = recorder.workspace(
        "conv_scan_backward_workspace",
        kernels::conv_scan_backward_workspace_bytes(shape_, n, recorder.storage()));
    const bool accumulate = recorder.batch().accumulate;
    recorder.compute(
        "conv_scan_backward",
        kernels::conv_scan_backward_cost(shape_, n, recorder.storage(), mamba_.conv_width),
        {read(dscan), read(kept.zxbcdt), read(recorder.parameter(conv_weight_)),
         read(recorder.parameter(conv_bias_)), read(recorder.parameter(a_log_)),
         read(recorder.parameter(d_)), read(recorder.parameter(dt_bias_)),
         read(recorder.batch().seq_idx), update(dzxbcdt),
         recorder.into(recorder.gradient(conv_weight_)),
         recorder.into(recorder.gradient(conv_bias_)), recorder.into(recorder.gradient(a_log_)),
         recorder.into(recorder.gradient(d_)), recorder.into(recorder.gradient(dt_bias_)),
         write(workspace)},
        [m = mamba_, shape = shape_, accumulate](execution::Queue& q, Views v) {
          kernels::conv_scan_backward(q, shape,
                                      {.dy = v[0],
                                       .xbc = conv_input(m, v[1]),
                                       .dt = dt(m, v[1]),
                                       .parameters = {.conv_weight = v[2],
                                                      .conv_bias = v[3],
                                                      .a_log = v[4],
                                                      .d = v[5],
                                                      .dt_bias = v[6]},
                                       .seq_idx = v[7],
                                       .dxbc = conv_input(m, v[8]),
                                       .ddt = dt(m, v[8]),
                                       .gradients = {.conv_weight = v[9],
                                                     .conv_bias = v[10],
                                                     .a_log = v[11],
                                                     .d = v[12],
                                                     .dt_bias = v[13]},
                                       .workspace = v[14]},
                                      accumulate);
        });
  }

  std::int64_t width_;
  SharedRows rows_;
  Shape mamba_;
  kernels::SsdShape shape_;
  SegmentExchange segments_;
  GatedNorm norm_;
  Product in_proj_;
  Product out_proj_;
  Parameter conv_weight_, conv_bias_, a_log_, d_, dt_bias_;
  std::vector<Parameter> parameters_;
};

}  // namespace

std::unique_ptr<Mixer> make_mamba(const MixerPlace& place) {
  return std::make_unique<Mamba>(place.config, place.ranks, place.prefix);
}

}  // namespace stowage::layers
