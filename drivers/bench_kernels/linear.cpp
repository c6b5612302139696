#include "kernels/linear/linear.hpp"

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/product_case.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using execution::Queue;
using kernels::ProductShape;
using kernels::Transpose;

Shape sizes(std::int64_t n, std::int64_t outputs, std::int64_t inputs) {
  return Shape{{"n", n}, {"M", outputs}, {"K", inputs}, {"accumulate", 0}};
}

/// The layers of the standard decks: fc1, fc2, in_proj, out_proj, qkv, attention's output; and a
/// cube.
Entry entry(const char* name, const char* help, ProductShape (*product)(const Shape&),
            void (*run)(Queue&, const Shape&, const Bound&, const Bound&, const Bound&)) {
  return {
      .name = name,
      .help = help,
      .shapes = {sizes(16384, 8192, 2048), sizes(16384, 2048, 8192), sizes(16384, 10304, 2048),
                 sizes(16384, 2048, 4096), sizes(16384, 3072, 2048), sizes(16384, 2048, 2048),
                 sizes(8192, 8192, 8192)},
      .implementations = product_implementations(),
      .make = [=](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        return std::make_unique<ProductCase>(gpu, product(shape), seed,
                                             [=](Queue& queue, const Bound& a, const Bound& b,
                                                 const Bound& c) { run(queue, shape, a, b, c); });
      }};
}

ProductShape forward(const Shape& shape) {
  return kernels::dense_shape(shape["n"], shape["M"], shape["K"], Transpose::no, Transpose::yes,
                              Dtype::bf16, Dtype::bf16, false);
}

ProductShape backward_input(const Shape& shape) {
  return kernels::dense_shape(shape["n"], shape["K"], shape["M"], Transpose::no, Transpose::no,
                              Dtype::bf16, Dtype::bf16, shape["accumulate"] != 0);
}

ProductShape backward_weight(const Shape& shape) {
  return kernels::dense_shape(shape["M"], shape["K"], shape["n"], Transpose::yes, Transpose::no,
                              Dtype::bf16, Dtype::fp32, shape["accumulate"] != 0);
}

template <class Op>
Op backward(const Shape& s) {
  return {s["n"], s["M"], s["K"], Dtype::bf16, Dtype::bf16, s["accumulate"] != 0};
}

}  // namespace

std::vector<Entry> linear_entries() {
  return {entry("linear_forward", "y (n, M) = x (n, K) w (M, K)^T, bf16 with fp32 sums", forward,
                [](Queue& queue, const Shape& s, const Bound& x, const Bound& w, const Bound& y) {
                  kernels::LinearForward{s["n"], s["M"], s["K"], Dtype::bf16, Dtype::bf16}.run(
                      queue, {.x = x.view(), .w = w.view(), .y = y.view()});
                }),
          entry("linear_backward_input", "dx (n, K) = dy (n, M) w (M, K), or dx +=", backward_input,
                [](Queue& queue, const Shape& s, const Bound& dy, const Bound& w, const Bound& dx) {
                  backward<kernels::LinearBackwardInput>(s).run(
                      queue, {.dy = dy.view(), .w = w, .dx = dx.view()});
                }),
          entry("linear_backward_weight",
                "dw (M, K) fp32 = dy (n, M)^T x (n, K), or dw +=", backward_weight,
                [](Queue& queue, const Shape& s, const Bound& dy, const Bound& x, const Bound& dw) {
                  backward<kernels::LinearBackwardWeight>(s).run(queue,
                                                                 {.dy = dy, .x = x, .dw = dw});
                })};
}

}  // namespace stowage::drivers::bench
