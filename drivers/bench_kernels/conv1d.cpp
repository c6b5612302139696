#include "kernels/conv1d/conv1d.hpp"

#include <algorithm>
#include <cmath>

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/operator_case.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

constexpr std::int64_t kCheckedChannels = 256;  // channels do not depend on each other

/// x (n, C), w (C, 4), b (C), documents of T tokens.
template <class Op>
class Conv1dCase : public OperatorCase<Op> {
 public:
  Conv1dCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase<Op>(gpu, sizes(shape), seed), checked_(this->op_) {
    this->o_.w->fill_normal(seed, 0, 0.3);
    this->o_.b->fill_normal(seed, 0, 0.3);
    for (std::int64_t t = 0; t < this->op_.tokens; ++t)
      documents_.push_back(static_cast<std::int32_t>(t / shape["T"]));
    this->o_.seq_idx->upload(documents_.data());
    checked_.channels = std::min(this->op_.channels, kCheckedChannels);
    checked_.storage = Dtype::fp64;
  }

 protected:
  static Op sizes(const Shape& shape) {
    Op op{};
    op.tokens = shape["B"] * shape["T"];
    op.channels = shape["C"];
    op.width = kernels::kConv1dMaxWidth;
    op.storage = Dtype::bf16;
    return op;
  }

  /// The channels that are compared with the reference.
  std::vector<double> rows(const Operand& tokens) const {
    return tokens.columns(0, checked_.channels);
  }
  std::vector<double> channels(const Operand& of_each) const {
    return of_each.rows(0, checked_.channels);
  }
  template <class T>
  kernels::Matrix<T> matrix(T* values) const {
    return {values, checked_.tokens, checked_.channels, checked_.channels};
  }
  Agreement agreement(const char* name, const std::vector<double>& ours,
                      const std::vector<double>& reference, double bound) const {
    return {name, relative_error(ours, reference), bound, false,
            some_of(checked_.channels, this->op_.channels, "channels")};
  }

  Op checked_;  ///< the same operator on those channels in fp64
  std::vector<std::int32_t> documents_;
};

struct Conv1dForward final : Conv1dCase<kernels::Conv1dForward> {
  using Conv1dCase::Conv1dCase;
  // One rounding to bf16 of an fp32 sum of four products.
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> x = rows(*o_.x.whole), w = channels(*o_.w), b = channels(*o_.b);
    std::vector<double> y(x.size());
    on_host([&] {
      checked_.reference<double>({.x = matrix(x.data()),
                                  .w = w.data(),
                                  .b = b.data(),
                                  .seq_idx = documents_.data(),
                                  .y = y.data(),
                                  .halo = nullptr});
    });
    return {agreement("y", rows(*o_.y), y, execution::epsilon(Dtype::bf16))};
  }
};

struct Conv1dBackward final : Conv1dCase<kernels::Conv1dBackward> {
  using Conv1dCase::Conv1dCase;
  // dw and db sum fp32 products over n tokens, in runs of tokens and then a tree of runs: at worst
  // a unit of fp32 for each of its log2(n) levels, and a few for the products.
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> dy = rows(*o_.dy), x = rows(*o_.x.whole), w = channels(*o_.w),
                              b = channels(*o_.b);
    std::vector<double> dx(x.size()), dw(w.size()), db(b.size());
    std::vector<double> workspace(checked_.workspace_bytes() / sizeof(double));
    on_host([&] {
      checked_.reference<double>({.dy = dy.data(),
                                  .x = matrix(x.data()),
                                  .w = w.data(),
                                  .b = b.data(),
                                  .seq_idx = documents_.data(),
                                  .dx = matrix(dx.data()),
                                  .dw = dw.data(),
                                  .db = db.data(),
                                  .workspace = workspace.data(),
                                  .halo = nullptr,
                                  .dhalo = nullptr});
    });
    const double sums =
        execution::epsilon(Dtype::fp32) * (std::log2(static_cast<double>(op_.tokens)) + 4);
    return {agreement("dx", rows(*o_.dx.whole), dx, execution::epsilon(Dtype::bf16)),
            agreement("dw", channels(*o_.dw), dw, sums),
            agreement("db", channels(*o_.db), db, sums)};
  }
};

/// 6144 channels: X, B and C of 64 heads of 64, 8 groups, N 128.
std::vector<Shape> shapes() {
  return {Shape{{"B", 2}, {"T", 8192}, {"C", 6144}}, Shape{{"B", 1}, {"T", 4096}, {"C", 6144}}};
}

}  // namespace

Entry conv1d_forward_entry() {
  return operator_entry<Conv1dForward>(
      "conv1d_forward", "y (B T, C) = silu(causal depthwise conv of width 4)", shapes());
}

Entry conv1d_backward_entry() {
  return operator_entry<Conv1dBackward>("conv1d_backward", "dx, dw, db of conv1d_forward",
                                        shapes());
}

}  // namespace stowage::drivers::bench
