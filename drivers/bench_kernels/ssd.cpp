#include <cmath>

#include "drivers/bench_kernels/entries.hpp"
#include "kernels/ssd/ssd.hpp"
#include "kernels/ssd/ssd_cuda.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

cudaStream_t stream(execution::Queue& queue) { return static_cast<cudaStream_t>(queue.stream()); }

/// The inputs of a scan of B documents of T tokens. Compared with the reference is group 0: groups
/// of heads share nothing.
class SsdCase : public Case {
 protected:
  SsdCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : n_(shape["B"] * shape["T"]),
        h_(shape["H"]),
        p_(shape["P"]),
        g_(shape["G"]),
        state_(shape["N"]),
        width_(h_ * p_ + 2 * g_ * state_),
        group_heads_(h_ / g_),
        xbc_(gpu, "xbc", Role::input, Dtype::bf16, {n_, width_}),
        dt_(gpu, "dt", Role::input, Dtype::bf16, {n_, h_}),
        a_log_(gpu, "a_log", Role::input, Dtype::fp32, {h_}),
        d_(gpu, "d", Role::input, Dtype::fp32, {h_}),
        dt_bias_(gpu, "dt_bias", Role::input, Dtype::fp32, {h_}),
        seq_idx_(gpu, "seq_idx", Role::input, Dtype::int32, {n_}) {
    xbc_.fill_normal(seed, 0, 1);
    dt_.fill_normal(seed, 0, 1);
    a_log_.fill_normal(seed, 1.4, 0.7);
    d_.fill_normal(seed, 1, 0.1);
    dt_bias_.fill_normal(seed, -4.6, 0.5);  // steps near 0.01
    documents_.resize(static_cast<std::size_t>(n_));
    for (std::int64_t t = 0; t < n_; ++t) documents_[t] = static_cast<std::int32_t>(t / shape["T"]);
    seq_idx_.upload(documents_.data());
    sizes_.tokens = n_;
    sizes_.heads = static_cast<int>(h_);
    sizes_.head_dim = static_cast<int>(p_);
    sizes_.groups = static_cast<int>(g_);
    sizes_.state = static_cast<int>(state_);
    sizes_.xbc_stride = sizes_.dxbc_stride = width_;
    sizes_.dt_stride = sizes_.ddt_stride = h_;
    sizes_.y_stride = h_ * p_;
    operands = {&xbc_, &dt_, &a_log_, &d_, &dt_bias_, &seq_idx_};
  }

  kernels::SsdShape shape() const {
    return {.heads = h_, .head_dim = p_, .groups = g_, .state = state_};
  }
  kernels::SsdShape group_shape() const {
    return {.heads = group_heads_, .head_dim = p_, .groups = 1, .state = state_};
  }
  std::vector<double> group_x(const Operand& xbc) const {
    return xbc.columns(0, group_heads_ * p_);
  }
  std::vector<double> group_b(const Operand& xbc) const { return xbc.columns(h_ * p_, state_); }
  std::vector<double> group_c(const Operand& xbc) const {
    return xbc.columns(h_ * p_ + g_ * state_, state_);
  }

  /// The inputs of group 0 in fp64.
  struct Reference {
    std::vector<double> x, dt, b, c, a_log, d, dt_bias;
  };
  Reference reference() const {
    return {group_x(xbc_),
            dt_.columns(0, group_heads_),
            group_b(xbc_),
            group_c(xbc_),
            a_log_.rows(0, group_heads_),
            d_.rows(0, group_heads_),
            dt_bias_.rows(0, group_heads_)};
  }
  template <class T>
  kernels::Matrix<T> matrix(T* data, std::int64_t columns) const {
    return {data, n_, columns, columns};
  }
  kernels::SsdInputs<double> inputs(const Reference& r) const {
    return {matrix(r.x.data(), group_heads_ * p_),
            matrix(r.dt.data(), group_heads_),
            matrix(r.b.data(), state_),
            matrix(r.c.data(), state_),
            r.a_log.data(),
            r.d.data(),
            r.dt_bias.data(),
            documents_.data()};
  }

  std::int64_t n_, h_, p_, g_, state_, width_, group_heads_;
  Operand xbc_, dt_, a_log_, d_, dt_bias_, seq_idx_;
  std::vector<std::int32_t> documents_;
  kernels::SsdCudaShape sizes_;
};

class SsdForward final : public SsdCase {
 public:
  SsdForward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : SsdCase(gpu, shape, seed),
        y_(gpu, "y", Role::output, Dtype::bf16, {n_, h_ * p_}),
        workspace_(gpu.device_memory(kernels::ssd_cuda_forward_workspace_bytes(sizes_))) {
    operands.push_back(&y_);
    args_.xbc = xbc_.data();
    args_.dt_raw = dt_.data();
    args_.a_log = a_log_.data();
    args_.d = d_.data();
    args_.dt_bias = dt_bias_.data();
    args_.seq_idx = seq_idx_.as<int>();
    args_.y = y_.data();
    args_.workspace = workspace_->data();
  }

  execution::Cost cost() const override {
    return kernels::ssd_forward_cost(shape(), n_, Dtype::bf16);
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    kernels::ssd_cuda_forward(sizes_, args_, stream(queue));
  }

  // Operands of products are rounded to bf16 twice on the way to y, and y once.
  std::vector<Agreement> check(const std::string&) override {
    const Reference r = reference();
    std::vector<double> y(r.x.size());
    std::vector<double> workspace(
        kernels::ssd_forward_workspace_bytes(group_shape(), n_, Dtype::fp64) / sizeof(double) + 1);
    on_host([&] {
      kernels::ssd_forward_ref<double>(group_shape(), inputs(r), y.data(), workspace.data());
    });
    return {{"y", relative_error(y_.columns(0, group_heads_ * p_), y),
             3 * execution::epsilon(Dtype::bf16), false, some_of(group_heads_, h_, "heads")}};
  }

 private:
  Operand y_;
  std::unique_ptr<execution::Arena> workspace_;
  kernels::SsdCudaForward args_;
};

class SsdBackward final : public SsdCase {
 public:
  SsdBackward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : SsdCase(gpu, shape, seed),
        dy_(gpu, "dy", Role::input, Dtype::bf16, {n_, h_ * p_}),
        dxbc_(gpu, "dxbc", Role::output, Dtype::bf16, {n_, width_}),
        ddt_(gpu, "ddt", Role::output, Dtype::bf16, {n_, h_}),
        da_log_(gpu, "da_log", Role::output, Dtype::fp32, {h_}),
        dd_(gpu, "dd", Role::output, Dtype::fp32, {h_}),
        ddt_bias_(gpu, "ddt_bias", Role::output, Dtype::fp32, {h_}),
        workspace_(gpu.device_memory(kernels::ssd_cuda_backward_workspace_bytes(sizes_))) {
    dy_.fill_normal(seed, 0, 1);
    operands.insert(operands.end(), {&dy_, &dxbc_, &ddt_, &da_log_, &dd_, &ddt_bias_});
    args_.dy = dy_.data();
    args_.xbc = xbc_.data();
    args_.dt_raw = dt_.data();
    args_.a_log = a_log_.data();
    args_.d = d_.data();
    args_.dt_bias = dt_bias_.data();
    args_.seq_idx = seq_idx_.as<int>();
    args_.dxbc = dxbc_.data();
    args_.ddt_raw = ddt_.data();
    args_.da_log = da_log_.as<float>();
    args_.dd = dd_.as<float>();
    args_.ddt_bias = ddt_bias_.as<float>();
    args_.workspace = workspace_->data();
  }

  execution::Cost cost() const override {
    return kernels::ssd_backward_cost(shape(), n_, Dtype::bf16);
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    kernels::ssd_cuda_backward(sizes_, args_, stream(queue));
  }

  // As forward, with one more product on each way.
  std::vector<Agreement> check(const std::string&) override {
    const Reference r = reference();
    const std::vector<double> dy = dy_.columns(0, group_heads_ * p_);
    Reference g = r;  // its gradients
    std::vector<double> workspace(
        kernels::ssd_backward_workspace_bytes(group_shape(), n_, Dtype::fp64) / sizeof(double) + 1);
    const kernels::SsdGradients<double> gradients = {matrix(g.x.data(), group_heads_ * p_),
                                                     matrix(g.dt.data(), group_heads_),
                                                     matrix(g.b.data(), state_),
                                                     matrix(g.c.data(), state_),
                                                     g.a_log.data(),
                                                     g.d.data(),
                                                     g.dt_bias.data()};
    on_host([&] {
      kernels::ssd_backward_ref<double>(group_shape(), inputs(r), dy.data(), gradients,
                                        workspace.data(), false);
    });
    // Sums over tokens of values with such an error: of neighbours, some 64, it is common, from one
    // rounded state; else independent, and falls as the square root. dd needs no rounded value.
    const double each = 4 * execution::epsilon(Dtype::bf16);
    const double summed = each / std::sqrt(std::max(1.0, static_cast<double>(n_) / 64));
    const std::string over = some_of(group_heads_, h_, "heads");
    return {{"dx", relative_error(group_x(dxbc_), g.x), each, false, over},
            {"db", relative_error(group_b(dxbc_), g.b), each, false, over},
            {"dc", relative_error(group_c(dxbc_), g.c), each, false, over},
            {"ddt", relative_error(ddt_.columns(0, group_heads_), g.dt), each, false, over},
            {"da_log", relative_error(da_log_.rows(0, group_heads_), g.a_log), summed, false, over},
            {"dd", relative_error(dd_.rows(0, group_heads_), g.d),
             tree_tolerance(static_cast<double>(n_ * p_)), false, over},
            {"ddt_bias", relative_error(ddt_bias_.rows(0, group_heads_), g.dt_bias), summed / 1.6,
             false, over}};
  }

 private:
  Operand dy_, dxbc_, ddt_, da_log_, dd_, ddt_bias_;
  std::unique_ptr<execution::Arena> workspace_;
  kernels::SsdCudaBackward args_;
};

template <class Direction>
Entry entry(const char* name, const char* help) {
  return {
      .name = name,
      .help = help,
      .shapes = {Shape{{"B", 2}, {"T", 8192}, {"H", 64}, {"P", 64}, {"G", 8}, {"N", 128}}},
      .implementations = {{"ours", "", ""}},
      .make = [](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        return std::make_unique<Direction>(gpu, shape, seed);
      }};
}

}  // namespace

Entry ssd_forward_entry() {
  return entry<SsdForward>("ssd_forward", "Mamba-2 scan, y (B T, H P) bf16, state in fp32");
}

Entry ssd_backward_entry() {
  return entry<SsdBackward>("ssd_backward", "gradients of ssd_forward, states computed again");
}

}  // namespace stowage::drivers::bench
