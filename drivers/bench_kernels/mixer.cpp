#include <map>

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/recorded.hpp"
#include "kernels/conv1d/conv1d.hpp"
#include "kernels/norm/gated_rmsnorm.hpp"
#include "kernels/ssd/ssd.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using Form = layers::ModelConfig::Mamba::Form;
using Values = std::vector<double>;

layers::ModelConfig model(const Shape& shape, Form form) {
  layers::ModelConfig model;
  model.pattern = "M";
  model.mamba = {.heads = static_cast<int>(shape["H"]),
                 .head_dim = static_cast<int>(shape["P"]),
                 .groups = static_cast<int>(shape["G"]),
                 .state = static_cast<int>(shape["N"]),
                 .form = form};
  model.width = model.mamba.inner();
  return model;
}

template <class T>
kernels::Matrix<T> matrix(T* values, std::int64_t rows, std::int64_t columns) {
  return {values, rows, columns, columns};
}

/// A Mamba-2 mixer between its two projections, forward and, unless left out, then backward:
/// convolution, scan, gated norm. "fused": convolution and scan as one operator, which makes the
/// convolution again in backward; "fused_forward": only there, with its output stored. All count
/// what the separate operators need. B documents of T tokens.
class Mixer final : public RecordedCase {
 public:
  Mixer(Processor& processor, const Shape& shape, std::int64_t seed, bool backward)
      : RecordedCase(processor),
        backward_(backward),
        n_(shape["B"] * shape["T"]),
        model_(model(shape, Form::separate)) {
    for (const auto& [name, form] : {std::pair{"ours", Form::separate},
                                     {"fused_forward", Form::fused_forward},
                                     {"fused", Form::fused}}) {
      RecordedMixer recording = record_mixer(shape, form, backward);
      if (form == Form::separate) cost_ = recording.cost();
      forms_.emplace(name, bind(std::move(recording)));
    }
    for (Operand& one : tensors_) operands.push_back(&one);
    find("in_proj_out").fill_normal(seed, 0, 1);
    if (backward) find("dgated").fill_normal(seed, 0, 1);
    parameter("conv1d.weight").fill_normal(seed, 0, 0.3);
    parameter("conv1d.bias").fill_normal(seed, 0, 0.3);
    parameter("A_log").fill_normal(seed, 1.4, 0.7);
    parameter("D").fill_normal(seed, 1, 0.1);
    parameter("dt_bias").fill_normal(seed, -4.6, 0.5);  // steps near 0.01
    parameter("norm.weight").fill_normal(seed, 1, 0.1);
    for (std::int64_t t = 0; t < n_; ++t)
      documents_.push_back(static_cast<std::int32_t>(t / shape["T"]));
    find("seq_idx").upload(documents_.data());
  }

  execution::Cost cost() const override { return cost_; }
  void enqueue(const std::string& implementation, execution::Queue& queue) override {
    for (const BoundOp& op : forms_.at(implementation)) op.enqueue(queue);
  }
  std::vector<Agreement> check(const std::string&) override;

 private:
  Operand& parameter(const std::string& name) { return find("layer.mamba." + name); }

  bool backward_;
  std::int64_t n_;
  layers::ModelConfig model_;
  execution::Cost cost_;
  std::map<std::string, std::vector<BoundOp>> forms_;
  std::vector<std::int32_t> documents_;
};

// Each operator is checked alone, from fp64; here the ends of the chain of the first group, as
// conv1d, scan and norm of a group share nothing with others.
std::vector<Agreement> Mixer::check(const std::string&) {
  const auto& all = model_.mamba;
  const std::int64_t n = n_, inner = all.inner(), state = all.state;
  const std::int64_t heads = all.heads / all.groups, width = heads * all.head_dim;
  const std::int64_t b_first = inner, c_first = inner + all.groups * state;
  const Operand &zxbcdt = find("in_proj_out"), &conv_w = parameter("conv1d.weight"),
                &conv_b = parameter("conv1d.bias");
  const Values z = zxbcdt.columns(0, width), norm_w = parameter("norm.weight").rows(0, width);
  const Values dt = zxbcdt.columns(inner + all.conv_channels(), heads);
  const Values a_log = parameter("A_log").rows(0, heads), d = parameter("D").rows(0, heads);
  const Values dt_bias = parameter("dt_bias").rows(0, heads);
  const kernels::SsdShape shape = {
      .heads = heads, .head_dim = all.head_dim, .groups = 1, .state = state, .chunk = all.chunk};
  struct Convolution {
    std::int64_t count;
    Values in, w, b, out;
  };
  const auto convolved = [&](std::int64_t first, std::int64_t count) {
    Convolution one{count, zxbcdt.columns(inner + first, count), conv_w.rows(first, count),
                    conv_b.rows(first, count), Values(static_cast<std::size_t>(n * count))};
    on_host([&] {
      kernels::conv1d_silu_forward_ref<double>(matrix<const double>(one.in.data(), n, count),
                                               one.w.data(), one.b.data(), documents_.data(),
                                               one.out.data());
    });
    return one;
  };
  const Convolution x = convolved(0, width), b = convolved(b_first, state),
                    c = convolved(c_first, state);
  const kernels::SsdInputs<double> inputs{matrix(x.out.data(), n, width),
                                          matrix(dt.data(), n, heads),
                                          matrix(b.out.data(), n, state),
                                          matrix(c.out.data(), n, state),
                                          a_log.data(),
                                          d.data(),
                                          dt_bias.data(),
                                          documents_.data()};
  const auto room = [](std::size_t bytes) { return Values(bytes / sizeof(double) + 1); };
  Values y(x.in.size()), out(y.size());
  on_host([&] {
    Values scan_room = room(kernels::ssd_forward_workspace_bytes(shape, n, Dtype::fp64));
    kernels::ssd_forward_ref<double>(shape, inputs, y.data(), scan_room.data());
    kernels::gated_rmsnorm_forward_ref<double>(y.data(), matrix(z.data(), n, width), norm_w.data(),
                                               out.data(), 1, model_.norm_epsilon);
  });
  // Rounded on the way: xbc, the scan's operands twice, y, the end; backward as many again, in
  // other sums.
  const std::string over = some_of(1, all.groups, "groups");
  const auto agreement = [&](const char* what, const Values& ours, const Values& reference) {
    return Agreement{what, relative_error(ours, reference), 5 * execution::epsilon(Dtype::bf16),
                     false, over};
  };
  std::vector<Agreement> all_agreements = {agreement("out", find("gated").columns(0, width), out)};
  if (!backward_) return all_agreements;
  const Values dout = find("dgated").columns(0, width);
  Values dy(y.size()), dz(y.size()), dnorm_w(norm_w.size()), dx(y.size()), dconv(y.size());
  Values db(b.in.size()), dc(b.in.size()), ddt(dt.size()), dconv_w(x.w.size()), dconv_b(x.b.size());
  Values da_log(a_log.size()), dd(d.size()), ddt_bias(dt_bias.size());
  on_host([&] {
    Values norm_room = room(kernels::gated_rmsnorm_backward_workspace_bytes(n, width, Dtype::fp64));
    kernels::gated_rmsnorm_backward_ref<double>(dout.data(), y.data(), matrix(z.data(), n, width),
                                                norm_w.data(), dy.data(),
                                                matrix(dz.data(), n, width), dnorm_w.data(),
                                                norm_room.data(), 1, model_.norm_epsilon, false);
    Values scan_room = room(kernels::ssd_backward_workspace_bytes(shape, n, Dtype::fp64));
    kernels::ssd_backward_ref<double>(
        shape, inputs, dy.data(),
        {matrix(dconv.data(), n, width), matrix(ddt.data(), n, heads), matrix(db.data(), n, state),
         matrix(dc.data(), n, state), da_log.data(), dd.data(), ddt_bias.data()},
        scan_room.data(), false);
    Values conv_room = room(kernels::conv1d_silu_backward_workspace_bytes(n, width, Dtype::fp64));
    kernels::conv1d_silu_backward_ref<double>(
        dconv.data(), matrix<const double>(x.in.data(), n, width), x.w.data(), x.b.data(),
        documents_.data(), matrix(dx.data(), n, width), dconv_w.data(), dconv_b.data(),
        conv_room.data(), false);
  });
  const Operand& dzxbcdt = find("din_proj_out");
  const Operand& dw = find("gradient/layer.mamba.conv1d.weight");
  all_agreements.push_back(agreement("dz", dzxbcdt.columns(0, width), dz));
  all_agreements.push_back(agreement("dx", dzxbcdt.columns(inner, width), dx));
  all_agreements.push_back(
      agreement("ddt", dzxbcdt.columns(inner + all.conv_channels(), heads), ddt));
  all_agreements.push_back(agreement("dconv_w", dw.rows(0, width), dconv_w));
  return all_agreements;
}

Entry entry(const char* name, const char* help, bool backward) {
  return {.name = name,
          .help = help,
          .shapes = {Shape{{"B", 2}, {"T", 8192}, {"H", 64}, {"P", 64}, {"G", 8}, {"N", 128}}},
          .implementations = {{"ours", "", ""}, {"fused_forward", "", ""}, {"fused", "", ""}},
          .make = [backward](Gpu& gpu, const Shape& shape, std::int64_t seed) {
            return make_mixer(gpu, shape, seed, backward);
          }};
}

}  // namespace

RecordedMixer record_mixer(const Shape& shape, Form form, bool backward) {
  RecordedMixer recording(model(shape, form), shape["B"], shape["T"], false);
  std::erase_if(recording.ops, [&](const RecordedOp& op) {
    return op.name.starts_with("in_proj") || op.name.starts_with("out_proj") ||
           (op.backward && !backward);
  });
  return recording;
}

std::unique_ptr<Case> make_mixer(Processor& processor, const Shape& shape, std::int64_t seed,
                                 bool backward) {
  return std::make_unique<Mixer>(processor, shape, seed, backward);
}

std::vector<Entry> mixer_entries() {
  return {entry("mixer_forward", "Mamba-2 mixer between its projections, forward", false),
          entry("mixer", "Mamba-2 mixer between its projections, forward and backward", true)};
}

}  // namespace stowage::drivers::bench
