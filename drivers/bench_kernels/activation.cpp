#include "kernels/activation/activation.hpp"

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/operator_case.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using kernels::Activation;

constexpr std::int64_t kCheckedRows = 64;

/// Of n rows of F, with a weight for each or without.
template <class Op>
Op activation_of(const Shape& shape, Activation kind) {
  return {.kind = kind,
          .rows = shape["n"],
          .columns = shape["F"],
          .storage = Dtype::bf16,
          .weighted = shape["weighted"] != 0};
}

template <Activation kKind>
class Forward final : public OperatorCase<kernels::ActivationForward> {
 public:
  Forward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu, activation_of<kernels::ActivationForward>(shape, kKind), seed) {
    if (op_.weighted) o_.row_weight->fill_normal(seed, 1, 0.2);
  }
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> x = o_.x->rows(0, kCheckedRows);
    std::vector<double> weight, y(static_cast<std::size_t>(kCheckedRows * op_.columns));
    if (op_.weighted) weight = o_.row_weight->rows(0, kCheckedRows);
    kernels::ActivationForward few = op_;
    few.rows = kCheckedRows;
    on_host([&] {
      few.reference<double>({.x = x.data(),
                             .row_weight = op_.weighted ? weight.data() : nullptr,
                             .y = y.data(),
                             .valid_rows = nullptr});
    });
    return {{"y", relative_error(o_.y->rows(0, kCheckedRows), y), execution::epsilon(Dtype::bf16),
             false, some_of(kCheckedRows, op_.rows, "rows")}};
  }
};

template <Activation kKind>
class Backward final : public OperatorCase<kernels::ActivationBackward> {
 public:
  Backward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu, activation_of<kernels::ActivationBackward>(shape, kKind), seed) {
    if (op_.weighted) o_.row_weight->fill_normal(seed, 1, 0.2);
  }
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> x = o_.x->rows(0, kCheckedRows), dy = o_.dy->rows(0, kCheckedRows);
    std::vector<double> weight, dx(x.size()), dweight(kCheckedRows);
    if (op_.weighted) weight = o_.row_weight->rows(0, kCheckedRows);
    kernels::ActivationBackward few = op_;
    few.rows = kCheckedRows;
    on_host([&] {
      few.reference<double>({.dy = dy.data(),
                             .x = x.data(),
                             .row_weight = op_.weighted ? weight.data() : nullptr,
                             .dx = dx.data(),
                             .drow_weight = op_.weighted ? dweight.data() : nullptr,
                             .valid_rows = nullptr,
                             .amax = nullptr});
    });
    const std::string over = some_of(kCheckedRows, op_.rows, "rows");
    std::vector<Agreement> all = {{"dx", relative_error(o_.dx->rows(0, kCheckedRows), dx),
                                   execution::epsilon(Dtype::bf16), false, over}};
    if (op_.weighted)  // a sum over a row of products of rounded values
      all.push_back({"dweight", relative_error(o_.drow_weight->rows(0, kCheckedRows), dweight),
                     tree_tolerance(static_cast<double>(op_.columns)), false, over});
    return all;
  }
};

}  // namespace

std::vector<Entry> activation_entries() {
  const std::vector<Shape> shapes = {Shape{{"n", 16384}, {"F", 8192}, {"weighted", 0}},
                                     Shape{{"n", 65536}, {"F", 1024}, {"weighted", 1}},
                                     Shape{{"n", 16384}, {"F", 2048}, {"weighted", 0}}};
  return {operator_entry<Forward<Activation::squared_relu>>("squared_relu_forward",
                                                            "y (n, F) = max(x, 0)^2", shapes),
          operator_entry<Backward<Activation::squared_relu>>("squared_relu_backward", "dx of it",
                                                             shapes),
          operator_entry<Forward<Activation::swiglu>>(
              "swiglu_forward", "y (n, F) = silu(gate) up, x (n, 2 F)", shapes),
          operator_entry<Backward<Activation::swiglu>>("swiglu_backward", "dx of it", shapes)};
}

}  // namespace stowage::drivers::bench
