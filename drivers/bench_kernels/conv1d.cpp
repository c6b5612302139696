#include <algorithm>
#include <cmath>

#include "drivers/bench_kernels/entries.hpp"
#include "kernels/conv1d/conv1d.hpp"
#include "kernels/conv1d/conv1d_cuda.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

constexpr std::int64_t kCheckedChannels = 256;  // channels do not depend on each other

cudaStream_t stream(execution::Queue& queue) { return static_cast<cudaStream_t>(queue.stream()); }

/// What forward and backward share: x (n, C), w (C, 4), b (C), documents of T tokens.
class Conv1dCase : public Case {
 protected:
  Conv1dCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : n_(shape["B"] * shape["T"]),
        c_(shape["C"]),
        checked_(std::min(c_, kCheckedChannels)),
        x_(gpu, "x", Role::input, Dtype::bf16, {n_, c_}),
        w_(gpu, "w", Role::input, Dtype::fp32, {c_, kernels::kConv1dMaxWidth}),
        b_(gpu, "b", Role::input, Dtype::fp32, {c_}),
        seq_idx_(gpu, "seq_idx", Role::input, Dtype::int32, {n_}) {
    x_.fill_normal(seed, 0, 1);
    w_.fill_normal(seed, 0, 0.3);
    b_.fill_normal(seed, 0, 0.3);
    documents_.resize(static_cast<std::size_t>(n_));
    for (std::int64_t t = 0; t < n_; ++t) documents_[t] = static_cast<std::int32_t>(t / shape["T"]);
    seq_idx_.upload(documents_.data());
    sizes_.tokens = n_;
    sizes_.channels = static_cast<int>(c_);
    sizes_.x_stride = sizes_.y_stride = sizes_.dx_stride = c_;
    operands = {&x_, &w_, &b_, &seq_idx_};
  }

  /// The channels that are compared with the reference.
  std::vector<double> checked(const Operand& operand) const {
    return operand.shape().front() == n_ ? operand.columns(0, checked_) : operand.rows(0, checked_);
  }
  kernels::Matrix<const double> matrix(const std::vector<double>& values) const {
    return {values.data(), n_, checked_, checked_};
  }

  std::int64_t n_, c_, checked_;
  Operand x_, w_, b_, seq_idx_;
  std::vector<std::int32_t> documents_;
  kernels::Conv1dCudaShape sizes_;
};

class Conv1dForward final : public Conv1dCase {
 public:
  Conv1dForward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : Conv1dCase(gpu, shape, seed), y_(gpu, "y", Role::output, Dtype::bf16, {n_, c_}) {
    operands.push_back(&y_);
    args_.x = x_.data();
    args_.w = w_.data();
    args_.b = b_.data();
    args_.seq_idx = seq_idx_.as<int>();
    args_.y = y_.data();
  }

  execution::Cost cost() const override {
    return kernels::conv1d_silu_forward_cost(n_, c_, Dtype::bf16);
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    kernels::conv1d_cuda_forward(sizes_, args_, stream(queue));
  }

  // One rounding to bf16 of an fp32 sum of four products.
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> x = checked(x_), w = checked(w_), b = checked(b_);
    std::vector<double> reference(x.size());
    on_host([&] {
      kernels::conv1d_silu_forward_ref<double>(matrix(x), w.data(), b.data(), documents_.data(),
                                               reference.data());
    });
    return {{"y", relative_error(checked(y_), reference), execution::epsilon(Dtype::bf16), false,
             some_of(checked_, c_, "channels")}};
  }

 private:
  Operand y_;
  kernels::Conv1dCudaForward args_;
};

class Conv1dBackward final : public Conv1dCase {
 public:
  Conv1dBackward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : Conv1dCase(gpu, shape, seed),
        dy_(gpu, "dy", Role::input, Dtype::bf16, {n_, c_}),
        dx_(gpu, "dx", Role::output, Dtype::bf16, {n_, c_}),
        dw_(gpu, "dw", Role::output, Dtype::fp32, {c_, kernels::kConv1dMaxWidth}),
        db_(gpu, "db", Role::output, Dtype::fp32, {c_}),
        workspace_(gpu.device_memory(kernels::conv1d_cuda_backward_workspace_bytes(sizes_))) {
    dy_.fill_normal(seed, 0, 1);
    operands.insert(operands.end(), {&dy_, &dx_, &dw_, &db_});
    args_.dy = dy_.data();
    args_.x = x_.data();
    args_.w = w_.data();
    args_.b = b_.data();
    args_.seq_idx = seq_idx_.as<int>();
    args_.dx = dx_.data();
    args_.dw = dw_.as<float>();
    args_.db = db_.as<float>();
    args_.workspace = workspace_->data();
  }

  execution::Cost cost() const override {
    return kernels::conv1d_silu_backward_cost(n_, c_, Dtype::bf16);
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    kernels::conv1d_cuda_backward(sizes_, args_, stream(queue));
  }

  // dw and db sum fp32 products over n tokens, in runs of tokens and then a tree of runs: at worst
  // a unit of fp32 for each of its log2(n) levels, and a few for the products.
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> x = checked(x_), dy = checked(dy_), w = checked(w_), b = checked(b_);
    std::vector<double> dx(x.size()), dw(w.size()), db(b.size());
    std::vector<double> workspace(
        kernels::conv1d_silu_backward_workspace_bytes(n_, checked_, Dtype::fp64) / sizeof(double) +
        1);
    on_host([&] {
      kernels::conv1d_silu_backward_ref<double>(
          dy.data(), matrix(x), w.data(), b.data(), documents_.data(),
          {dx.data(), n_, checked_, checked_}, dw.data(), db.data(), workspace.data(), false);
    });
    const double sums = execution::epsilon(Dtype::fp32) * (std::log2(static_cast<double>(n_)) + 4);
    const std::string over = some_of(checked_, c_, "channels");
    return {{"dx", relative_error(checked(dx_), dx), execution::epsilon(Dtype::bf16), false, over},
            {"dw", relative_error(checked(dw_), dw), sums, false, over},
            {"db", relative_error(checked(db_), db), sums, false, over}};
  }

 private:
  Operand dy_, dx_, dw_, db_;
  std::unique_ptr<execution::Arena> workspace_;
  kernels::Conv1dCudaBackward args_;
};

/// 6144 channels: X, B and C of 64 heads of 64, 8 groups, N 128.
template <class Direction>
Entry entry(const char* name, const char* help) {
  return {
      .name = name,
      .help = help,
      .shapes = {Shape{{"B", 2}, {"T", 8192}, {"C", 6144}},
                 Shape{{"B", 1}, {"T", 4096}, {"C", 6144}}},
      .implementations = {{"ours", "", ""}},
      .make = [](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        return std::make_unique<Direction>(gpu, shape, seed);
      }};
}

}  // namespace

Entry conv1d_forward_entry() {
  return entry<Conv1dForward>("conv1d_forward",
                              "y (B T, C) = silu(causal depthwise conv of width 4)");
}

Entry conv1d_backward_entry() {
  return entry<Conv1dBackward>("conv1d_backward", "dx, dw, db of conv1d_forward");
}

}  // namespace stowage::drivers::bench
