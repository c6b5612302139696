#include "kernels/activation/activation.hpp"

#include "drivers/bench_kernels/bound.hpp"
#include "drivers/bench_kernels/entries.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using kernels::Activation;

constexpr std::int64_t kCheckedRows = 64;

/// An activation of x (n, F), forward or backward, with a weight for each row or without.
class ActivationCase final : public Case {
 public:
  ActivationCase(Gpu& gpu, const Shape& shape, std::int64_t seed, Activation kind, bool backward)
      : kind_(kind),
        backward_(backward),
        weighted_(shape["weighted"] != 0),
        n_(shape["n"]),
        f_(shape["F"]),
        x_(gpu, "x", Role::input, Dtype::bf16, {n_, width()}),
        dy_(gpu, "dy", Role::input, Dtype::bf16, {n_, f_}),
        weight_(gpu, "row_weight", Role::input, Dtype::fp32, {n_}),
        out_(gpu, backward ? "dx" : "y", Role::output, Dtype::bf16, {n_, backward ? width() : f_}),
        dweight_(gpu, "drow_weight", Role::output, Dtype::fp32, {n_}),
        bound_{Bound(x_), Bound(dy_), Bound(weight_), Bound(out_), Bound(dweight_)} {
    operands = {&x_, &out_};
    if (backward) operands.push_back(&dy_);
    if (weighted_) operands.push_back(&weight_);
    x_.fill_normal(seed, 0, 1);
    dy_.fill_normal(seed, 0, 1);
    weight_.fill_normal(seed, 1, 0.2);
  }
  execution::Cost cost() const override {
    return backward_ ? kernels::activation_backward_cost(kind_, n_, f_, Dtype::bf16)
                     : kernels::activation_forward_cost(kind_, n_, f_, Dtype::bf16);
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    const auto& [x, dy, weight, out, dweight] = bound_;
    const execution::View scale = weighted_ ? weight.view() : execution::View();
    const execution::View dscale = weighted_ ? dweight.view() : execution::View();
    if (backward_)
      kernels::activation_backward(queue, kind_, dy, x, scale, out, dscale);
    else
      kernels::activation_forward(queue, kind_, x, scale, out);
  }
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> x = x_.rows(0, kCheckedRows), dy = dy_.rows(0, kCheckedRows),
                              weight = weight_.rows(0, kCheckedRows);
    std::vector<double> out(static_cast<std::size_t>(kCheckedRows * out_.shape()[1]));
    std::vector<double> dweight(weight.size());
    const double* scale = weighted_ ? weight.data() : nullptr;
    on_host([&] {
      if (backward_)
        kernels::activation_backward_ref<double>(kind_, kCheckedRows, f_, dy.data(), x.data(),
                                                 scale, out.data(),
                                                 weighted_ ? dweight.data() : nullptr, nullptr);
      else
        kernels::activation_forward_ref<double>(kind_, kCheckedRows, f_, x.data(), scale,
                                                out.data(), nullptr);
    });
    const std::string over = some_of(kCheckedRows, n_, "rows");
    std::vector<Agreement> all = {{backward_ ? "dx" : "y",
                                   relative_error(out_.rows(0, kCheckedRows), out),
                                   execution::epsilon(Dtype::bf16), false, over}};
    if (backward_ && weighted_)  // a sum over a row of products of rounded values
      all.push_back({"dweight", relative_error(dweight_.rows(0, kCheckedRows), dweight),
                     tree_tolerance(static_cast<double>(f_)), false, over});
    return all;
  }

 private:
  std::int64_t width() const { return kernels::activation_width(kind_, f_); }

  Activation kind_;
  bool backward_, weighted_;
  std::int64_t n_, f_;
  Operand x_, dy_, weight_, out_, dweight_;
  std::array<Bound, 5> bound_;
};

Entry entry(const char* name, const char* help, Activation kind, bool backward) {
  return {.name = name,
          .help = help,
          .shapes = {Shape{{"n", 16384}, {"F", 8192}, {"weighted", 0}},
                     Shape{{"n", 65536}, {"F", 1024}, {"weighted", 1}},
                     Shape{{"n", 16384}, {"F", 2048}, {"weighted", 0}}},
          .implementations = {{"ours", "", ""}},
          .make = [=](Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
            return std::make_unique<ActivationCase>(gpu, shape, seed, kind, backward);
          }};
}

}  // namespace

std::vector<Entry> activation_entries() {
  return {
      entry("squared_relu_forward", "y (n, F) = max(x, 0)^2", Activation::squared_relu, false),
      entry("squared_relu_backward", "dx of it", Activation::squared_relu, true),
      entry("swiglu_forward", "y (n, F) = silu(gate) up, x (n, 2 F)", Activation::swiglu, false),
      entry("swiglu_backward", "dx of it", Activation::swiglu, true)};
}

}  // namespace stowage::drivers::bench
