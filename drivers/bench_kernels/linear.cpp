#include "kernels/linear/linear.hpp"
#include <cmath>

#include "drivers/bench_kernels/bound.hpp"
#include "drivers/bench_kernels/entries.hpp"
#include "drivers/measure/gemm.hpp"
#include "drivers/measure/timer.hpp"
#include "kernels/linear/dense_product.hpp"
#include "kernels/linear/product_table.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using kernels::ProductShape;
using kernels::Transpose;

constexpr int kCandidates = 64;
constexpr std::int64_t kSampledRows = 8;

/// Which of the three products of a linear layer.
enum class Direction : unsigned char { forward, backward_input, backward_weight };

ProductShape product_of(Direction direction, const Shape& shape) {
  const std::int64_t n = shape["n"], m = shape["M"], k = shape["K"];
  const bool accumulate = shape["accumulate"] != 0;
  switch (direction) {
    case Direction::forward:
      return kernels::dense_shape(n, m, k, Transpose::no, Transpose::yes, Dtype::bf16, Dtype::bf16,
                                  false);
    case Direction::backward_input:
      return kernels::dense_shape(n, k, m, Transpose::no, Transpose::no, Dtype::bf16, Dtype::bf16,
                                  accumulate);
    case Direction::backward_weight:
      return kernels::dense_shape(m, k, n, Transpose::yes, Transpose::no, Dtype::bf16, Dtype::fp32,
                                  accumulate);
  }
  return {};
}

/// One product of a linear layer: as the operator runs it ("ours"), by the first algorithm of
/// cuBLASLt's heuristics ("cublas"), and by the fastest of all that they name ("cublas_search").
class LinearCase final : public Case {
 public:
  LinearCase(Gpu& gpu, const Shape& shape, std::int64_t seed, Direction direction)
      : direction_(direction),
        product_(product_of(direction, shape)),
        a_(gpu, "a", Role::input, Dtype::bf16,
           stored(product_.transpose_a, product_.m, product_.k)),
        b_(gpu, "b", Role::input, Dtype::bf16,
           stored(product_.transpose_b, product_.k, product_.n)),
        c_(gpu, "c", Role::output, product_.result, {product_.m, product_.n}),
        bound_{Bound(a_), Bound(b_), Bound(c_)},
        workspace_(gpu.device_memory(kernels::kProductWorkspaceBytes)),
        plan_(product_, kCandidates) {
    operands = {&a_, &b_, &c_};
    a_.fill_normal(seed, 0, 1);
    b_.fill_normal(seed, 0, 0.02);
    c_.fill_normal(seed, 0, 1);
    kernels::prepare_products(static_cast<cudaStream_t>(gpu.queue().stream()));
    Timer timer(gpu);
    fastest_ = fastest_candidate(timer, plan_, a_.data(), b_.data(), c_.data(), workspace_->data());
    row_ = kernels::table_row({gpu.device().name, kernels::product_library_number(), product_,
                               plan_.algorithm(fastest_)});
  }

  execution::Cost cost() const override {
    const double result = product_.accumulate ? 2 : 1;
    return {
        2.0 * static_cast<double>(product_.m) * static_cast<double>(product_.n) *
            static_cast<double>(product_.k),
        static_cast<double>(a_.bytes() + b_.bytes()) + result * static_cast<double>(c_.bytes())};
  }

  void enqueue(const std::string& implementation, execution::Queue& queue) override {
    const auto& [a, b, c] = bound_;
    if (implementation != "ours")
      plan_.run(implementation == "cublas" ? 0 : fastest_, a_.data(), b_.data(), c_.data(),
                workspace_->data(), static_cast<cudaStream_t>(queue.stream()));
    else if (direction_ == Direction::forward)
      kernels::linear_forward(queue, a, b, c);
    else if (direction_ == Direction::backward_input)
      kernels::linear_backward_input(queue, a, b, c, product_.accumulate);
    else
      kernels::linear_backward_weight(queue, a, b, c, product_.accumulate);
  }

  std::string product_row() const override { return row_; }

  // Rows spread over c, in fp64. Of sums of K terms in fp32, rounded once to the result's dtype. A
  // product that adds to c cannot be told from what poison leaves, so it is not compared here.
  std::vector<Agreement> check(const std::string&) override {
    if (product_.accumulate) return {};
    const std::vector<double> a = a_.values(), b = b_.values();
    std::vector<double> out, reference;
    for (std::int64_t i = 0; i < kSampledRows; ++i) {
      const std::int64_t row = i * (product_.m - 1) / (kSampledRows - 1);
      const std::vector<double> c = c_.rows(row, 1);
      out.insert(out.end(), c.begin(), c.end());
      add_row(a, b, row, reference);
    }
    const double sums =
        4 * execution::epsilon(Dtype::fp32) * std::sqrt(static_cast<double>(product_.k));
    return {{"c", relative_error(out, reference), execution::epsilon(product_.result) + sums}};
  }

 private:
  static std::vector<std::int64_t> stored(Transpose transpose, std::int64_t rows,
                                          std::int64_t columns) {
    if (transpose == Transpose::yes) std::swap(rows, columns);
    return {rows, columns};
  }

  // Row `row` of op(a) op(b) in fp64, appended.
  void add_row(const std::vector<double>& a, const std::vector<double>& b, std::int64_t row,
               std::vector<double>& to) const {
    const auto at = [](const std::vector<double>& v, std::int64_t i, std::int64_t j,
                       std::int64_t stride, Transpose transpose) {
      return v[static_cast<std::size_t>(transpose == Transpose::yes ? j * stride + i
                                                                    : i * stride + j)];
    };
    for (std::int64_t j = 0; j < product_.n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < product_.k; ++l)
        sum += at(a, row, l, product_.a_stride, product_.transpose_a) *
               at(b, l, j, product_.b_stride, product_.transpose_b);
      to.push_back(sum);
    }
  }

  Direction direction_;
  ProductShape product_;
  Operand a_, b_, c_;
  std::array<Bound, 3> bound_;
  std::unique_ptr<execution::Arena> workspace_;
  kernels::ProductPlan plan_;
  int fastest_ = 0;
  std::string row_;
};

Shape sizes(std::int64_t n, std::int64_t outputs, std::int64_t inputs, std::int64_t accumulate) {
  return Shape{{"n", n}, {"M", outputs}, {"K", inputs}, {"accumulate", accumulate}};
}

/// The layers of the standard decks: fc1, fc2, in_proj, out_proj, qkv, attention's output; and a
/// cube.
Entry entry(const char* name, const char* help, Direction direction, std::int64_t accumulate) {
  const std::string version = kernels::product_library();
  return {.name = name,
          .help = help,
          .shapes = {sizes(16384, 8192, 2048, accumulate), sizes(16384, 2048, 8192, accumulate),
                     sizes(16384, 10304, 2048, accumulate), sizes(16384, 2048, 4096, accumulate),
                     sizes(16384, 3072, 2048, accumulate), sizes(16384, 2048, 2048, accumulate),
                     sizes(8192, 8192, 8192, accumulate)},
          .implementations = {{"ours", version, ""},
                              {"cublas", version, ""},
                              {"cublas_search", version, ""}},
          .make = [=](Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
            return std::make_unique<LinearCase>(gpu, shape, seed, direction);
          }};
}

}  // namespace

std::vector<Entry> linear_entries() {
  return {entry("linear_forward", "y (n, M) = x (n, K) w (M, K)^T, bf16 with fp32 sums",
                Direction::forward, 0),
          entry("linear_backward_input",
                "dx (n, K) = dy (n, M) w (M, K), or dx +=", Direction::backward_input, 0),
          entry("linear_backward_weight",
                "dw (M, K) fp32 = dy (n, M)^T x (n, K), or dw +=", Direction::backward_weight, 0)};
}

}  // namespace stowage::drivers::bench
