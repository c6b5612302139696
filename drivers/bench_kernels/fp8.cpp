#include "execution/fp8.hpp"
#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/operator_case.hpp"
#include "drivers/bench_kernels/product_case.hpp"
#include "kernels/fp8/quantise.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using kernels::ProductShape;
using kernels::Transpose;

constexpr std::int64_t kCheckedRows = 64;

/// Squared ReLU of x, as a product of fc2 has it, or x itself.
std::optional<kernels::Activation> activation(const Shape& shape) {
  if (shape["act"] == 0) return {};
  return kernels::Activation::squared_relu;
}
double activated(std::optional<kernels::Activation> activation, double x) {
  if (!activation) return x;
  const double positive = std::max(x, 0.0);
  return static_cast<double>(execution::Bf16(positive * positive));
}

class Largest final : public OperatorCase<kernels::LargestMagnitude> {
 public:
  Largest(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu,
                     {.rows = shape["n"],
                      .width = shape["D"],
                      .storage = Dtype::bf16,
                      .activation = activation(shape)},
                     seed) {}
  std::vector<Agreement> check(const std::string&) override {
    double largest = 0;
    for (const double value : o_.x->values())
      largest = std::max(largest, std::abs(activated(op_.activation, value)));
    return {{"amax", relative_error(o_.amax->values(), {largest}), 0, false, "all"}};
  }
};

/// Both payloads against the rounding of the host, whose bits they must have.
class Quantised final : public OperatorCase<kernels::Quantise> {
 public:
  Quantised(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu,
                     {.rows = shape["n"],
                      .width = shape["D"],
                      .storage = Dtype::bf16,
                      .payload = shape["e5m2"] != 0 ? Dtype::e5m2 : Dtype::e4m3,
                      .activation = activation(shape)},
                     seed) {
    const float amax = 6;
    o_.amax->upload(&amax);
  }
  std::vector<Agreement> check(const std::string&) override {
    std::vector<double> plain = o_.x->rows(0, kCheckedRows);
    const double scale = o_.scale->values().front();
    execution::with_fp8_type(op_.payload, [&]<class Format>() {
      for (double& value : plain)
        value = static_cast<double>(Format(activated(op_.activation, value) / scale));
    });
    std::vector<double> turned(plain.size());
    for (std::int64_t i = 0; i < kCheckedRows; ++i)
      for (std::int64_t j = 0; j < op_.width; ++j)
        turned[static_cast<std::size_t>(j * kCheckedRows + i)] =
            plain[static_cast<std::size_t>(i * op_.width + j)];
    const std::string over = some_of(kCheckedRows, op_.rows, "rows");
    return {{"payload", relative_error(o_.payload->rows(0, kCheckedRows), plain), 0, false, over},
            {"transposed", relative_error(o_.transposed->columns(0, kCheckedRows), turned), 0,
             false, over}};
  }
};

/// Bytes that only move.
class Transposed final : public OperatorCase<kernels::TransposePayload> {
 public:
  Transposed(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu,
                     {.rows = shape["n"],
                      .width = shape["D"],
                      .storage = Dtype::bf16,
                      .payload = Dtype::e4m3},
                     seed) {}
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> plain = o_.payload->columns(0, kCheckedRows);
    std::vector<double> turned(plain.size());
    for (std::int64_t i = 0; i < op_.rows; ++i)
      for (std::int64_t j = 0; j < kCheckedRows; ++j)
        turned[static_cast<std::size_t>(j * op_.rows + i)] =
            plain[static_cast<std::size_t>(i * kCheckedRows + j)];
    return {{"transposed", relative_error(o_.transposed->rows(0, kCheckedRows), turned), 0, false,
             some_of(kCheckedRows, op_.width, "columns")}};
  }
};

Shape sizes(std::int64_t n, std::int64_t outputs, std::int64_t inputs) {
  return Shape{{"n", n}, {"M", outputs}, {"K", inputs}, {"fast", 0}};
}

ProductShape of_8_bits(std::int64_t m, std::int64_t n, std::int64_t k, Dtype c,
                       const Shape& shape) {
  ProductShape product =
      kernels::dense_shape(m, n, k, Transpose::no, Transpose::yes, Dtype::e4m3, c, false);
  product.b = Dtype::e4m3;
  product.fast = shape["fast"] != 0;
  return product;
}

ProductShape forward(const Shape& shape) {
  return of_8_bits(shape["n"], shape["M"], shape["K"], Dtype::bf16, shape);
}
ProductShape backward_input(const Shape& shape) {
  return of_8_bits(shape["n"], shape["K"], shape["M"], Dtype::bf16, shape);
}
ProductShape backward_weight(const Shape& shape) {
  return of_8_bits(shape["M"], shape["K"], shape["n"], Dtype::fp32, shape);
}

/// The layers that are quantised in the standard decks: in_proj, out_proj, fc1, fc2, qkv, proj; and
/// those of a wide model. Gradients are e4m3, the default.
Entry product(const char* name, const char* help, ProductShape (*shape_of)(const Shape&)) {
  return {
      .name = name,
      .help = help,
      .shapes = {sizes(16384, 10304, 2048), sizes(16384, 2048, 4096), sizes(16384, 8192, 2048),
                 sizes(16384, 2048, 8192), sizes(16384, 3072, 2048), sizes(16384, 2048, 2048),
                 sizes(16384, 16384, 4096), sizes(16384, 4096, 16384)},
      .implementations = product_implementations(),
      .make = [=](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        return std::make_unique<ProductCase>(gpu, shape_of(shape), seed, ProductCase::Ours());
      }};
}

}  // namespace

std::vector<Entry> fp8_entries() {
  const std::vector<Shape> shapes = {Shape{{"n", 16384}, {"D", 2048}, {"e5m2", 0}, {"act", 0}},
                                     Shape{{"n", 16384}, {"D", 8192}, {"e5m2", 1}, {"act", 0}},
                                     Shape{{"n", 16384}, {"D", 10304}, {"e5m2", 0}, {"act", 0}},
                                     Shape{{"n", 16384}, {"D", 8192}, {"e5m2", 0}, {"act", 1}}};
  return {operator_entry<Largest>("largest_magnitude", "amax of x (n, D), or of relu(x)^2",
                                  {Shape{{"n", 16384}, {"D", 2048}, {"act", 0}},
                                   Shape{{"n", 16384}, {"D", 8192}, {"act", 1}}}),
          operator_entry<Quantised>("quantise",
                                    "x (n, D), or relu(x)^2, and its transpose, as 8 bits", shapes),
          operator_entry<Transposed>(
              "transpose_payload", "8 bits (n, D) that ranks gathered",
              {Shape{{"n", 16384}, {"D", 2048}}, Shape{{"n", 16384}, {"D", 4480}}}),
          product("fp8_forward", "y (n, M) = x w^T, e4m3 by e4m3", forward),
          product("fp8_backward_input", "dx (n, K) = dy w, e4m3 by e4m3", backward_input),
          product("fp8_backward_weight", "dw (M, K) fp32 = dy^T x, e4m3 by e4m3", backward_weight)};
}

}  // namespace stowage::drivers::bench
