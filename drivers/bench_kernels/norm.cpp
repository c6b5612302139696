#include "kernels/norm/rmsnorm.hpp"

#include <cmath>

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/operator_case.hpp"
#include "kernels/norm/gated_rmsnorm.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

constexpr std::int64_t kCheckedRows = 64;
constexpr double kEps = 1e-5;

/// Adds up `terms` fp32 numbers, and rounds to storage once.
double row_tolerance(std::int64_t terms) {
  return execution::epsilon(Dtype::bf16) + tree_tolerance(static_cast<double>(terms));
}

/// The same operator on the checked rows in fp64.
template <class Op>
Op checked(Op op) {
  op.rows = kCheckedRows;
  op.storage = Dtype::fp64;
  return op;
}

struct RmsnormForward final : OperatorCase<kernels::AddRmsnormForward> {
  RmsnormForward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu,
                     {.rows = shape["n"],
                      .width = shape["D"],
                      .storage = Dtype::bf16,
                      .residual = true,
                      .eps = kEps},
                     seed) {}
  // From the sum as it was rounded: one more rounding.
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> sum = o_.sum->rows(0, kCheckedRows), w = o_.w->values();
    std::vector<double> y(sum.size()), rstd(kCheckedRows);
    kernels::AddRmsnormForward of_sum = checked(op_);
    of_sum.residual = false;
    on_host([&] {
      of_sum.reference<double>({.x = sum.data(),
                                .delta = nullptr,
                                .w = w.data(),
                                .sum = nullptr,
                                .y = y.data(),
                                .rstd = rstd.data(),
                                .amax = nullptr});
    });
    // The root halves the error of the mean; it rounds to 2 units itself.
    const double root = 4 * execution::epsilon(Dtype::fp32);
    const std::string over = some_of(kCheckedRows, op_.rows, "rows");
    return {{"y", relative_error(o_.y->rows(0, kCheckedRows), y), row_tolerance(op_.width), false,
             over},
            {"rstd", relative_error(o_.rstd->rows(0, kCheckedRows), rstd), root, false, over}};
  }
};

struct RmsnormBackward final : OperatorCase<kernels::RmsnormBackward> {
  RmsnormBackward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu,
                     {.rows = shape["n"],
                      .width = shape["D"],
                      .storage = Dtype::bf16,
                      .residual = true,
                      .accumulate = false},
                     seed) {
    o_.rstd->fill_normal(seed, 1, 0.1);
  }
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> dy = o_.dy->values(), x = o_.x->values(), w = o_.w->values(),
                              rstd = o_.rstd->values(),
                              residual = o_.dresidual->rows(0, kCheckedRows);
    std::vector<double> dx(residual.size()), dw(w.size(), 0.0), unused(w.size());
    std::vector<double> room(w.size() * kCheckedRows);
    on_host([&] {
      checked(op_).reference<double>({.dy = dy.data(),
                                      .x = x.data(),
                                      .w = w.data(),
                                      .rstd = rstd.data(),
                                      .dresidual = residual.data(),
                                      .dx = dx.data(),
                                      .dw = unused.data(),
                                      .workspace = room.data(),
                                      .amax = nullptr});
    });
    for (std::size_t i = 0; i < x.size(); ++i)
      dw[i % dw.size()] += dy[i] * x[i] * rstd[i / dw.size()];
    return {
        {"dx", relative_error(o_.dx->rows(0, kCheckedRows), dx), row_tolerance(op_.width), false,
         some_of(kCheckedRows, op_.rows, "rows")},
        {"dw", relative_error(o_.dw->values(), dw), tree_tolerance(static_cast<double>(op_.rows)),
         false, some_of(op_.width, op_.width, "columns")}};
  }
};

/// z beside other columns of a projection's output.
struct GatedForward final : OperatorCase<kernels::GatedRmsnormForward> {
  GatedForward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu,
                     {.rows = shape["n"],
                      .width = shape["D"],
                      .groups = shape["G"],
                      .storage = Dtype::bf16,
                      .eps = kEps},
                     seed, shape["stride"]) {}
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> y = o_.y->rows(0, kCheckedRows), w = o_.w->values(),
                              z = o_.z.whole->block(0, kCheckedRows, 0, op_.width);
    std::vector<double> out(y.size());
    on_host([&] {
      checked(op_).reference<double>({.y = y.data(),
                                      .z = {z.data(), kCheckedRows, op_.width, op_.width},
                                      .w = w.data(),
                                      .squares = nullptr,
                                      .out = out.data(),
                                      .amax = nullptr});
    });
    return {{"out", relative_error(o_.out->rows(0, kCheckedRows), out),
             row_tolerance(op_.width / op_.groups), false,
             some_of(kCheckedRows, op_.rows, "rows")}};
  }
};

struct GatedBackward final : OperatorCase<kernels::GatedRmsnormBackward> {
  GatedBackward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu,
                     {.rows = shape["n"],
                      .width = shape["D"],
                      .groups = shape["G"],
                      .storage = Dtype::bf16,
                      .eps = kEps,
                      .accumulate = false},
                     seed, shape["stride"]) {}
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> dout = o_.dout->rows(0, kCheckedRows),
                              y = o_.y->rows(0, kCheckedRows), w = o_.w->values(),
                              z = o_.z.whole->block(0, kCheckedRows, 0, op_.width);
    std::vector<double> dy(y.size()), dz(y.size()), dw(w.size()), room(w.size() * kCheckedRows);
    on_host([&] {
      checked(op_).reference<double>({.dout = dout.data(),
                                      .y = y.data(),
                                      .z = {z.data(), kCheckedRows, op_.width, op_.width},
                                      .w = w.data(),
                                      .dy = dy.data(),
                                      .dz = {dz.data(), kCheckedRows, op_.width, op_.width},
                                      .dw = dw.data(),
                                      .workspace = room.data(),
                                      .squares = nullptr,
                                      .projections = nullptr,
                                      .amax = nullptr});
    });
    const double bound = row_tolerance(op_.width / op_.groups);
    const std::string over = some_of(kCheckedRows, op_.rows, "rows");
    return {{"dy", relative_error(o_.dy->rows(0, kCheckedRows), dy), bound, false, over},
            {"dz", relative_error(o_.dz.whole->block(0, kCheckedRows, 0, op_.width), dz), bound,
             false, over}};
  }
};

}  // namespace

std::vector<Entry> norm_entries() {
  const std::vector<Shape> rows = {Shape{{"n", 16384}, {"D", 2048}},
                                   Shape{{"n", 65536}, {"D", 768}},
                                   Shape{{"n", 16384}, {"D", 2688}}};
  const std::vector<Shape> gated = {Shape{{"n", 16384}, {"D", 4096}, {"G", 8}, {"stride", 10304}}};
  return {operator_entry<RmsnormForward>("add_rmsnorm_forward",
                                         "sum, y and rstd of x + delta (n, D)", rows),
          operator_entry<RmsnormBackward>("rmsnorm_backward", "dx with the residual's gradient, dw",
                                          rows),
          operator_entry<GatedForward>("gated_rmsnorm_forward", "rmsnorm(y silu(z)) w in G groups",
                                       gated),
          operator_entry<GatedBackward>("gated_rmsnorm_backward", "dy, dz, dw of it", gated)};
}

}  // namespace stowage::drivers::bench
