// Products of 8 bits with the quantisation that they need, beside the bf16 products that they stand
// for.
#include <cmath>

#include "drivers/bench_kernels/bound.hpp"
#include "drivers/bench_kernels/entries.hpp"
#include "execution/fp8.hpp"
#include "kernels/fp8/fp8_product.hpp"
#include "kernels/fp8/quantise.hpp"
#include "kernels/linear/dense_product.hpp"
#include "kernels/linear/linear.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using execution::Queue;

// Places of a factor's payload and of the transpose of it, each with its scale behind it.
constexpr std::size_t kPlain = 2, kTransposed = 4;
constexpr std::int64_t kComparedRows = 8, kComparedColumns = 32;

/// A tensor of bf16 with what its quantisation leaves.
struct Factor {
  Factor(run::Gpu& gpu, const std::string& name, std::int64_t rows, std::int64_t columns,
         double deviation, std::int64_t seed)
      : op{.rows = rows, .width = columns, .storage = Dtype::bf16, .payload = Dtype::e4m3},
        values(gpu, name, Role::input, Dtype::bf16, {rows, columns}),
        amax(gpu, name + "_amax", Role::workspace, Dtype::fp32, {1}),
        payload(gpu, name + "_payload", Role::workspace, op.payload, {rows, columns}),
        transposed(gpu, name + "_transposed", Role::workspace, op.payload, {columns, rows}),
        scale(gpu, name + "_scale", Role::workspace, Dtype::fp32, {1}),
        transposed_scale(gpu, name + "_transposed_scale", Role::workspace, Dtype::fp32, {1}),
        of{Bound(values), Bound(amax),       Bound(payload),
           Bound(scale),  Bound(transposed), Bound(transposed_scale)} {
    values.fill_normal(seed, 0, deviation);
    measure(gpu.queue());
    quantise(gpu.queue());
    gpu.queue().synchronize();
  }

  void measure(Queue& queue) const {
    kernels::LargestMagnitude{.rows = op.rows, .width = op.width, .storage = op.storage}.run(
        queue, {.x = of[0].view(), .amax = of[1]});
  }
  void quantise(Queue& queue) const {
    op.run(queue, {.x = of[0].view(),
                   .amax = of[1],
                   .payload = of[2].view(),
                   .scale = of[3].view(),
                   .transposed = of[4].view(),
                   .transposed_scale = of[5].view()});
  }

  kernels::Quantise op;
  Operand values, amax, payload, transposed, scale, transposed_scale;
  std::vector<Bound> of;
};

/// y = x w^T, or dx = dy w and dw = dy^T x. "ours" quantises the activation or its gradient, whose
/// largest magnitude the op that writes it has found, and takes a weight that was quantised once in
/// the step; "measured" finds the largest magnitude too; "bf16" are the products that stand there
/// otherwise. All count what the bf16 ones need.
class Linear final : public Case {
 public:
  Linear(run::Gpu& gpu, const Shape& shape, std::int64_t seed, bool backward)
      : backward_(backward),
        n_(shape["n"]),
        outputs_(shape["M"]),
        inputs_(shape["K"]),
        x_(gpu, "x", n_, inputs_, 1, seed),
        w_(gpu, "w", outputs_, inputs_, 0.02, seed),
        dy_(gpu, "dy", n_, outputs_, 1, seed),
        y_(gpu, "y", Role::output, Dtype::bf16, {n_, backward ? inputs_ : outputs_}),
        dw_(gpu, "dw", Role::output, Dtype::fp32, {outputs_, inputs_}),
        bound_y_(y_),
        bound_dw_(dw_) {
    operands = {&x_.values, &w_.values, &y_};
    if (backward) operands = {&x_.values, &w_.values, &dy_.values, &y_, &dw_};
  }

  execution::Cost cost() const override {
    return backward_ ? input_gradient().cost() + weight_gradient().cost() : forward().cost();
  }

  void enqueue(const std::string& implementation, Queue& queue) override {
    if (implementation == "bf16") return enqueue_bf16(queue);
    const Factor& rounded = backward_ ? dy_ : x_;
    if (implementation == "measured") rounded.measure(queue);
    rounded.quantise(queue);
    if (!backward_) {
      multiply(queue, n_, outputs_, inputs_, x_, kPlain, w_, kPlain, bound_y_, false);
    } else {
      multiply(queue, n_, inputs_, outputs_, dy_, kPlain, w_, kTransposed, bound_y_, false);
      multiply(queue, outputs_, inputs_, n_, dy_, kTransposed, x_, kTransposed, bound_dw_, true);
    }
  }

  std::vector<Agreement> check(const std::string& implementation) override {
    const bool rounded = implementation != "bf16";
    if (!backward_) return {compare("y", y_, x_, false, w_, false, inputs_, rounded, true)};
    return {compare("dx", y_, dy_, false, w_, true, outputs_, rounded, false),
            compare("dw", dw_, dy_, true, x_, true, n_, rounded, false)};
  }

 private:
  kernels::LinearForward forward() const {
    return {n_, outputs_, inputs_, Dtype::bf16, Dtype::bf16};
  }
  kernels::LinearBackwardInput input_gradient() const {
    return {n_, outputs_, inputs_, Dtype::bf16, Dtype::bf16, false};
  }
  kernels::LinearBackwardWeight weight_gradient() const {
    return {n_, outputs_, inputs_, Dtype::bf16, Dtype::bf16, false};
  }

  void enqueue_bf16(Queue& queue) const {
    if (!backward_)
      return forward().run(queue,
                           {.x = x_.of[0].view(), .w = w_.of[0].view(), .y = bound_y_.view()});
    input_gradient().run(queue, {.dy = dy_.of[0].view(), .w = w_.of[0], .dx = bound_y_.view()});
    weight_gradient().run(queue, {.dy = dy_.of[0], .x = x_.of[0], .dw = bound_dw_});
  }

  /// c (m, n) of two payloads.
  static void multiply(Queue& queue, std::int64_t m, std::int64_t n, std::int64_t k,
                       const Factor& a, std::size_t of_a, const Factor& b, std::size_t of_b,
                       const Bound& c, bool sums) {
    kernels::Fp8Product{.m = m,
                        .n = n,
                        .k = k,
                        .storage = Dtype::bf16,
                        .a = a.op.payload,
                        .b = b.op.payload,
                        .sums = sums,
                        .fast = of_b == kPlain}
        .run(queue, {.a = a.of[of_a].view(),
                     .b = b.of[of_b].view(),
                     .a_scale = a.of[of_a + 1].view(),
                     .b_scale = b.of[of_b + 1].view(),
                     .c = c.view()});
  }

  /// The first elements of c against sums in fp64 of its factors' values, as `rounded` to 8 bits.
  /// Hopper adds products of 8 bits in 14 bits, with `fast` all of them and else 128 terms.
  /// @param along a factor's rows are the terms of the sum
  static Agreement compare(const char* what, const Operand& c, const Factor& a, bool a_along,
                           const Factor& b, bool b_along, std::int64_t k, bool rounded, bool fast) {
    const auto values = [&](const Factor& of, std::int64_t rows, std::int64_t columns) {
      std::vector<double> all = of.values.block(0, rows, 0, columns);
      if (!rounded) return all;
      const double scale = of.scale.values().front();
      execution::with_fp8_type(of.op.payload, [&]<class Format>() {
        for (double& value : all) value = scale * static_cast<double>(Format(value / scale));
      });
      return all;
    };
    const auto terms = [&](const Factor& of, bool along, std::int64_t count) {
      if (!along) return values(of, count, k);
      const std::vector<double> block = values(of, k, count);
      std::vector<double> turned(block.size());
      for (std::int64_t l = 0; l < k; ++l)
        for (std::int64_t i = 0; i < count; ++i)
          turned[static_cast<std::size_t>(i * k + l)] =
              block[static_cast<std::size_t>(l * count + i)];
      return turned;
    };
    const std::vector<double> left = terms(a, a_along, kComparedRows);
    const std::vector<double> right = terms(b, b_along, kComparedColumns);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < kComparedRows; ++i)
      for (std::int64_t j = 0; j < kComparedColumns; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l)
          sum += left[static_cast<std::size_t>(i * k + l)] *
                 right[static_cast<std::size_t>(j * k + l)];
        expected.push_back(sum);
      }
    const double terms_cut = static_cast<double>(fast ? k : 128);
    const double sums =
        rounded ? 0x1p-13 * std::sqrt(terms_cut / 32)
                : 4 * execution::epsilon(Dtype::fp32) * std::sqrt(static_cast<double>(k));
    const double tolerance = execution::epsilon(c.dtype()) + sums;
    return {what, relative_error(c.block(0, kComparedRows, 0, kComparedColumns), expected),
            tolerance, false, some_of(kComparedRows * kComparedColumns, c.elements(), "elements")};
  }

  bool backward_;
  std::int64_t n_, outputs_, inputs_;
  Factor x_, w_, dy_;
  Operand y_, dw_;
  Bound bound_y_, bound_dw_;
};

Entry entry(const char* name, const char* help, bool backward) {
  const auto sizes = [](std::int64_t outputs, std::int64_t inputs) {
    return Shape{{"n", 16384}, {"M", outputs}, {"K", inputs}};
  };
  const std::string library = kernels::product_library();
  return {
      .name = name,
      .help = help,
      // in_proj, out_proj, fc1, fc2, qkv, proj of the standard decks; fc1 and fc2 of a wide model.
      .shapes = {sizes(10304, 2048), sizes(2048, 4096), sizes(8192, 2048), sizes(2048, 8192),
                 sizes(3072, 2048), sizes(2048, 2048), sizes(16384, 4096), sizes(4096, 16384)},
      .implementations = {{"ours", library, "", "by the table of algorithms"},
                          {"measured", library, "", "with a pass for the largest magnitude"},
                          {"bf16", library, "", "by the table of algorithms"}},
      .make = [=](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        return std::make_unique<Linear>(gpu, shape, seed, backward);
      }};
}

}  // namespace

std::vector<Entry> fp8_linear_entries() {
  return {entry("fp8_linear_forward", "y (n, M) = x w^T with the quantisation of x", false),
          entry("fp8_linear_backward",
                "dx (n, K) = dy w and dw (M, K) = dy^T x with the quantisation of dy", true)};
}

}  // namespace stowage::drivers::bench
