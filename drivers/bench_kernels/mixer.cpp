#include <algorithm>
#include <deque>
#include <utility>

#include "drivers/bench_kernels/bound.hpp"
#include "drivers/bench_kernels/entries.hpp"
#include "kernels/conv1d/conv1d.hpp"
#include "kernels/conv_scan/conv_scan.hpp"
#include "kernels/norm/gated_rmsnorm.hpp"
#include "kernels/ssd/ssd.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using kernels::Columns;
using Values = std::vector<double>;

constexpr double kEps = 1e-5;

/// A Mamba-2 mixer between its two projections, forward and, unless left out, then backward:
/// convolution, scan, gated norm, by their queue forms, each from what the one before stored in
/// bf16. "fused": convolution and scan as one operator, which makes the convolution again in
/// backward; "fused_forward": only there, with its output stored. B documents of T tokens.
class Mixer final : public Case {
 public:
  Mixer(Gpu& gpu, const Shape& shape, std::int64_t seed, bool backward)
      : backward_(backward),
        n_(shape["B"] * shape["T"]),
        shape_{.heads = shape["H"],
               .head_dim = shape["P"],
               .groups = shape["G"],
               .state = shape["N"],
               .chunk = 128},
        inner_(shape_.heads * shape_.head_dim),
        shared_(shape_.groups * shape_.state),
        conv_(inner_ + 2 * shared_),
        documents_(static_cast<std::size_t>(n_)),
        zxbcdt_(gpu, "zxbcdt", Role::input, Dtype::bf16, {n_, inner_ + conv_ + shape_.heads}),
        dout_(gpu, "dout", Role::input, Dtype::bf16, {n_, inner_}),
        conv_w_(gpu, "conv_w", Role::input, Dtype::bf16, {conv_, kernels::kConv1dWidth}),
        conv_b_(gpu, "conv_b", Role::input, Dtype::bf16, {conv_}),
        a_log_(gpu, "a_log", Role::input, Dtype::bf16, {shape_.heads}),
        d_(gpu, "d", Role::input, Dtype::bf16, {shape_.heads}),
        dt_bias_(gpu, "dt_bias", Role::input, Dtype::bf16, {shape_.heads}),
        norm_w_(gpu, "norm_w", Role::input, Dtype::bf16, {inner_}),
        seq_idx_(gpu, "seq_idx", Role::input, Dtype::int32, {n_}),
        xbc_(gpu, "xbc", Role::output, Dtype::bf16, {n_, conv_}),
        y_(gpu, "y", Role::output, Dtype::bf16, {n_, inner_}),
        out_(gpu, "out", Role::output, Dtype::bf16, {n_, inner_}),
        dy_(gpu, "dy", Role::output, Dtype::bf16, {n_, inner_}),
        dxbc_(gpu, "dxbc", Role::output, Dtype::bf16, {n_, conv_}),
        dzxbcdt_(gpu, "dzxbcdt", Role::output, Dtype::bf16, zxbcdt_.shape()),
        dconv_w_(gpu, "dconv_w", Role::output, Dtype::fp32, conv_w_.shape()),
        dconv_b_(gpu, "dconv_b", Role::output, Dtype::fp32, {conv_}),
        da_log_(gpu, "da_log", Role::output, Dtype::fp32, {shape_.heads}),
        dd_(gpu, "dd", Role::output, Dtype::fp32, {shape_.heads}),
        ddt_bias_(gpu, "ddt_bias", Role::output, Dtype::fp32, {shape_.heads}),
        dnorm_w_(gpu, "dnorm_w", Role::output, Dtype::fp32, {inner_}),
        room_(gpu, "workspace", Role::workspace, Dtype::uint8, {room_bytes()}) {
    operands = {&zxbcdt_,  &dout_,   &conv_w_, &conv_b_, &a_log_,   &d_,       &dt_bias_, &norm_w_,
                &seq_idx_, &xbc_,    &y_,      &out_,    &dy_,      &dxbc_,    &dzxbcdt_, &dconv_w_,
                &dconv_b_, &da_log_, &dd_,     &room_,   &dnorm_w_, &ddt_bias_};
    for (Operand* one : {&zxbcdt_, &dout_}) one->fill_normal(seed, 0, 1);
    conv_w_.fill_normal(seed, 0, 0.3);
    conv_b_.fill_normal(seed, 0, 0.3);
    a_log_.fill_normal(seed, 1.4, 0.7);
    d_.fill_normal(seed, 1, 0.1);
    dt_bias_.fill_normal(seed, -4.6, 0.5);  // steps near 0.01
    norm_w_.fill_normal(seed, 1, 0.1);
    for (std::int64_t t = 0; t < n_; ++t) documents_[t] = static_cast<std::int32_t>(t / shape["T"]);
    seq_idx_.upload(documents_.data());
    for (const Operand* one : operands) bound_.emplace_back(one, Bound(*one));
  }

  execution::Cost cost() const override {
    const Dtype s = Dtype::bf16;
    execution::Cost sum;
    const auto add = [&](const execution::Cost& one) {
      sum.flops += one.flops;
      sum.bytes += one.bytes;
    };
    add(kernels::conv1d_silu_forward_cost(n_, conv_, s));
    add(kernels::ssd_forward_cost(shape_, n_, s));
    add(kernels::gated_rmsnorm_forward_cost(n_, inner_, s));
    if (!backward_) return sum;
    add(kernels::gated_rmsnorm_backward_cost(n_, inner_, s));
    add(kernels::ssd_backward_cost(shape_, n_, s));
    add(kernels::conv1d_silu_backward_cost(n_, conv_, s));
    return sum;
  }

  void enqueue(const std::string& implementation, execution::Queue& q) override {
    const bool keeps = implementation == "fused_forward";
    const Columns z = columns(zxbcdt_, 0, inner_);
    implementation == "ours" ? separate_forward(q) : fused_forward(q, keeps);
    kernels::gated_rmsnorm_forward(q, at(y_), z, at(norm_w_), at(out_), shape_.groups, kEps);
    if (!backward_) return;
    kernels::gated_rmsnorm_backward(q, at(dout_), at(y_), z, at(norm_w_), at(dy_),
                                    columns(dzxbcdt_, 0, inner_), at(dnorm_w_), at(room_),
                                    shape_.groups, kEps, false);
    implementation == "fused" ? fused_backward(q) : separate_backward(q);
  }

  // Each operator is checked alone, from fp64; here the ends of the chain of the first group, as
  // conv1d, scan and norm of a group share nothing with others: the output, and dz.
  std::vector<Agreement> check(const std::string&) override {
    const std::int64_t heads = shape_.heads / shape_.groups, width = heads * shape_.head_dim;
    const Values x = convolved(0, width), b = convolved(inner_, shape_.state);
    const Values c = convolved(inner_ + shared_, shape_.state);
    const Values dt = zxbcdt_.columns(inner_ + conv_, heads), z = zxbcdt_.columns(0, width);
    const Values a_log = a_log_.rows(0, heads), d = d_.rows(0, heads);
    const Values dt_bias = dt_bias_.rows(0, heads), w = norm_w_.rows(0, width);
    kernels::SsdShape one = shape_;
    one.heads = heads;
    one.groups = 1;
    Values y(x.size()), out(x.size()), dy(x.size()), dz(x.size()), dw(w.size());
    Values room(kernels::ssd_forward_workspace_bytes(one, n_, Dtype::fp64) / sizeof(double) + 1);
    Values norm_room(kernels::gated_rmsnorm_backward_workspace_bytes(n_, width, Dtype::fp64) /
                         sizeof(double) +
                     1);
    const Values dout = dout_.columns(0, width);
    const auto matrix = [this](const Values& values, std::int64_t columns) {
      return kernels::Matrix<const double>{values.data(), n_, columns, columns};
    };
    on_host([&] {
      const kernels::SsdInputs<double> inputs{
          matrix(x, width), matrix(dt, heads), matrix(b, one.state), matrix(c, one.state),
          a_log.data(),     d.data(),          dt_bias.data(),       documents_.data()};
      kernels::ssd_forward_ref<double>(one, inputs, y.data(), room.data());
      kernels::gated_rmsnorm_forward_ref<double>(y.data(), matrix(z, width), w.data(), out.data(),
                                                 1, kEps);
      kernels::gated_rmsnorm_backward_ref<double>(dout.data(), y.data(), matrix(z, width), w.data(),
                                                  dy.data(), {dz.data(), n_, width, width},
                                                  dw.data(), norm_room.data(), 1, kEps, false);
    });
    const double tolerance = 5 * execution::epsilon(Dtype::bf16);  // xbc, its products, y, the end
    const Agreement forward{"out", relative_error(out_.columns(0, width), out), tolerance};
    if (!backward_) return {forward};
    return {forward, {"dz", relative_error(dzxbcdt_.columns(0, width), dz), tolerance}};
  }

 private:
  /// The scan's part of rows [x | B | C].
  Columns part(const Operand& rows, int i) const {
    const std::int64_t first[] = {0, inner_, inner_ + shared_};
    return columns(rows, first[i], i == 0 ? inner_ : shared_);
  }
  Columns conv_columns(const Operand& rows) const { return columns(rows, inner_, conv_); }
  Columns dt_columns(const Operand& rows) const {
    return columns(rows, inner_ + conv_, shape_.heads);
  }
  kernels::SsdInputOperands scan_inputs() const {
    return {.x = part(xbc_, 0),
            .dt = dt_columns(zxbcdt_),
            .b = part(xbc_, 1),
            .c = part(xbc_, 2),
            .a_log = at(a_log_),
            .d = at(d_),
            .dt_bias = at(dt_bias_),
            .seq_idx = at(seq_idx_)};
  }
  void separate_forward(execution::Queue& q) const {
    kernels::conv1d_silu_forward(q, conv_columns(zxbcdt_), at(conv_w_), at(conv_b_), at(seq_idx_),
                                 at(xbc_));
    kernels::ssd_forward(q, shape_, {.inputs = scan_inputs(), .y = at(y_), .workspace = at(room_)});
  }
  void separate_backward(execution::Queue& q) const {
    kernels::ssd_backward(q, shape_,
                          {.dy = at(dy_),
                           .inputs = scan_inputs(),
                           .dx = part(dxbc_, 0),
                           .ddt = dt_columns(dzxbcdt_),
                           .db = part(dxbc_, 1),
                           .dc = part(dxbc_, 2),
                           .da_log = at(da_log_),
                           .dd = at(dd_),
                           .ddt_bias = at(ddt_bias_),
                           .workspace = at(room_)},
                          false);
    kernels::conv1d_silu_backward(q,
                                  {.dy = at(dxbc_),
                                   .x = conv_columns(zxbcdt_),
                                   .w = at(conv_w_),
                                   .b = at(conv_b_),
                                   .seq_idx = at(seq_idx_),
                                   .dx = conv_columns(dzxbcdt_),
                                   .dw = at(dconv_w_),
                                   .db = at(dconv_b_),
                                   .workspace = at(room_)},
                                  false);
  }
  kernels::ConvScanParameters parameters() const {
    return {.conv_weight = at(conv_w_),
            .conv_bias = at(conv_b_),
            .a_log = at(a_log_),
            .d = at(d_),
            .dt_bias = at(dt_bias_)};
  }
  void fused_forward(execution::Queue& q, bool keeps) const {
    kernels::conv_scan_forward(q, shape_,
                               {.xbc = conv_columns(zxbcdt_),
                                .dt = dt_columns(zxbcdt_),
                                .parameters = parameters(),
                                .seq_idx = at(seq_idx_),
                                .convolved = keeps ? at(xbc_) : execution::View{},
                                .y = at(y_),
                                .workspace = at(room_)});
  }
  void fused_backward(execution::Queue& q) const {
    kernels::conv_scan_backward(q, shape_,
                                {.dy = at(dy_),
                                 .xbc = conv_columns(zxbcdt_),
                                 .dt = dt_columns(zxbcdt_),
                                 .parameters = parameters(),
                                 .seq_idx = at(seq_idx_),
                                 .dxbc = conv_columns(dzxbcdt_),
                                 .ddt = dt_columns(dzxbcdt_),
                                 .gradients = {.conv_weight = at(dconv_w_),
                                               .conv_bias = at(dconv_b_),
                                               .a_log = at(da_log_),
                                               .d = at(dd_),
                                               .dt_bias = at(ddt_bias_)},
                                 .workspace = at(room_)},
                                false);
  }

  std::int64_t room_bytes() const {
    return static_cast<std::int64_t>(
        std::max({kernels::conv_scan_forward_workspace_bytes(shape_, n_, Dtype::bf16),
                  kernels::conv_scan_backward_workspace_bytes(shape_, n_, Dtype::bf16),
                  kernels::gated_rmsnorm_backward_workspace_bytes(n_, inner_, Dtype::bf16)}));
  }
  execution::View at(const Operand& operand) const {
    return std::ranges::find(bound_, &operand, [](const auto& one) { return one.first; })
        ->second.view();
  }
  Columns columns(const Operand& operand, std::int64_t first, std::int64_t count) const {
    return {at(operand), first, count};
  }

  /// The convolution of some channels in fp64.
  Values convolved(std::int64_t first, std::int64_t count) const {
    const Values x = zxbcdt_.columns(inner_ + first, count), b = conv_b_.rows(first, count);
    const Values w = conv_w_.rows(first, count);
    Values y(x.size());
    on_host([&] {
      kernels::conv1d_silu_forward_ref<double>({x.data(), n_, count, count}, w.data(), b.data(),
                                               documents_.data(), y.data());
    });
    return y;
  }

  bool backward_;
  std::int64_t n_;
  kernels::SsdShape shape_;
  std::int64_t inner_, shared_, conv_;
  std::vector<std::int32_t> documents_;
  Operand zxbcdt_, dout_, conv_w_, conv_b_, a_log_, d_, dt_bias_, norm_w_, seq_idx_;
  Operand xbc_, y_, out_, dy_, dxbc_, dzxbcdt_;
  Operand dconv_w_, dconv_b_, da_log_, dd_, ddt_bias_, dnorm_w_, room_;
  std::deque<std::pair<const Operand*, Bound>> bound_;
};

Entry entry(const char* name, const char* help, bool backward) {
  return {
      .name = name,
      .help = help,
      .shapes = {Shape{{"B", 2}, {"T", 8192}, {"H", 64}, {"P", 64}, {"G", 8}, {"N", 128}}},
      .implementations = {{"ours", "", ""}, {"fused_forward", "", ""}, {"fused", "", ""}},
      .make = [backward](Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        return std::make_unique<Mixer>(gpu, shape, seed, backward);
      }};
}

}  // namespace

std::vector<Entry> mixer_entries() {
  return {entry("mixer_forward", "Mamba-2 mixer between its projections, forward", false),
          entry("mixer", "Mamba-2 mixer between its projections, forward and backward", true)};
}

}  // namespace stowage::drivers::bench
