#include <cmath>

#include "drivers/bench_kernels/bound.hpp"
#include "drivers/bench_kernels/entries.hpp"
#include "kernels/norm/gated_rmsnorm.hpp"
#include "kernels/norm/rmsnorm.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

constexpr std::int64_t kCheckedRows = 64;
constexpr double kEps = 1e-5;

/// Adds up `terms` fp32 numbers, and rounds to storage once.
double row_tolerance(std::int64_t terms) {
  return execution::epsilon(Dtype::bf16) + tree_tolerance(static_cast<double>(terms));
}

/// Residual sum and norm of x (n, D).
class RmsnormForward final : public Case {
 public:
  RmsnormForward(Gpu& gpu, const Shape& shape, std::int64_t seed)
      : n_(shape["n"]),
        d_(shape["D"]),
        x_(gpu, "x", Role::input, Dtype::bf16, {n_, d_}),
        delta_(gpu, "delta", Role::input, Dtype::bf16, {n_, d_}),
        w_(gpu, "w", Role::input, Dtype::bf16, {d_}),
        sum_(gpu, "sum", Role::output, Dtype::bf16, {n_, d_}),
        y_(gpu, "y", Role::output, Dtype::bf16, {n_, d_}),
        rstd_(gpu, "rstd", Role::output, Dtype::fp32, {n_}),
        bound_{Bound(x_), Bound(delta_), Bound(w_), Bound(sum_), Bound(y_), Bound(rstd_)} {
    operands = {&x_, &delta_, &w_, &sum_, &y_, &rstd_};
    for (Operand* one : {&x_, &delta_, &w_}) one->fill_normal(seed, 0, 1);
  }
  execution::Cost cost() const override {
    return kernels::add_rmsnorm_forward_cost(n_, d_, Dtype::bf16, true);
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    const auto& [x, delta, w, sum, y, rstd] = bound_;
    kernels::add_rmsnorm_forward(queue, x, delta, w, sum, y, rstd, kEps);
  }
  // From the sum as it was rounded: one more rounding.
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> sum = sum_.rows(0, kCheckedRows), w = w_.values();
    std::vector<double> y(sum.size()), rstd(kCheckedRows);
    on_host([&] {
      kernels::add_rmsnorm_forward_ref<double>(kCheckedRows, d_, sum.data(), nullptr, w.data(),
                                               nullptr, y.data(), rstd.data(), kEps);
    });
    // The root halves the error of the mean; it rounds to 2 units itself.
    const double root = 4 * execution::epsilon(Dtype::fp32);
    const std::string over = some_of(kCheckedRows, n_, "rows");
    return {{"y", relative_error(y_.rows(0, kCheckedRows), y), row_tolerance(d_), false, over},
            {"rstd", relative_error(rstd_.rows(0, kCheckedRows), rstd), root, false, over}};
  }

 private:
  std::int64_t n_, d_;
  Operand x_, delta_, w_, sum_, y_, rstd_;
  std::array<Bound, 6> bound_;
};

/// dx with the residual's gradient, and dw.
class RmsnormBackward final : public Case {
 public:
  RmsnormBackward(Gpu& gpu, const Shape& shape, std::int64_t seed)
      : n_(shape["n"]),
        d_(shape["D"]),
        room_bytes_(static_cast<std::int64_t>(
            kernels::rmsnorm_backward_workspace_bytes(n_, d_, Dtype::bf16))),
        dy_(gpu, "dy", Role::input, Dtype::bf16, {n_, d_}),
        x_(gpu, "x", Role::input, Dtype::bf16, {n_, d_}),
        w_(gpu, "w", Role::input, Dtype::bf16, {d_}),
        rstd_(gpu, "rstd", Role::input, Dtype::fp32, {n_}),
        residual_(gpu, "dresidual", Role::input, Dtype::bf16, {n_, d_}),
        dx_(gpu, "dx", Role::output, Dtype::bf16, {n_, d_}),
        dw_(gpu, "dw", Role::output, Dtype::fp32, {d_}),
        room_(gpu, "workspace", Role::workspace, Dtype::uint8, {room_bytes_}),
        bound_{Bound(dy_),       Bound(x_),  Bound(w_),  Bound(rstd_),
               Bound(residual_), Bound(dx_), Bound(dw_), Bound(room_)} {
    operands = {&dy_, &x_, &w_, &rstd_, &residual_, &dx_, &dw_, &room_};
    for (Operand* one : {&dy_, &x_, &w_, &residual_}) one->fill_normal(seed, 0, 1);
    rstd_.fill_normal(seed, 1, 0.1);
  }
  execution::Cost cost() const override {
    return kernels::rmsnorm_backward_cost(n_, d_, Dtype::bf16, true);
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    const auto& [dy, x, w, rstd, residual, dx, dw, room] = bound_;
    kernels::rmsnorm_backward(queue, dy, x, w, rstd, residual, dx, dw, room, false);
  }
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> dy = dy_.values(), x = x_.values(), w = w_.values(),
                              rstd = rstd_.values(), residual = residual_.rows(0, kCheckedRows);
    std::vector<double> dx(residual.size()), dw(w.size(), 0.0), unused(w.size());
    std::vector<double> room(w.size() * kCheckedRows);
    on_host([&] {
      kernels::rmsnorm_backward_ref<double>(kCheckedRows, d_, dy.data(), x.data(), w.data(),
                                            rstd.data(), residual.data(), dx.data(), unused.data(),
                                            room.data(), false);
    });
    for (std::size_t i = 0; i < x.size(); ++i)
      dw[i % dw.size()] += dy[i] * x[i] * rstd[i / dw.size()];
    return {{"dx", relative_error(dx_.rows(0, kCheckedRows), dx), row_tolerance(d_), false,
             some_of(kCheckedRows, n_, "rows")},
            {"dw", relative_error(dw_.values(), dw), tree_tolerance(static_cast<double>(n_)), false,
             some_of(d_, d_, "columns")}};
  }

 private:
  std::int64_t n_, d_, room_bytes_;
  Operand dy_, x_, w_, rstd_, residual_, dx_, dw_, room_;
  std::array<Bound, 8> bound_;
};

/// The gated norm of y (n, D) in G groups, z beside other columns of a projection's output.
class Gated final : public Case {
 public:
  Gated(Gpu& gpu, const Shape& shape, std::int64_t seed, bool backward)
      : backward_(backward),
        n_(shape["n"]),
        d_(shape["D"]),
        groups_(shape["G"]),
        stride_(shape["stride"]),
        room_bytes_(static_cast<std::int64_t>(
            kernels::gated_rmsnorm_backward_workspace_bytes(n_, d_, Dtype::bf16))),
        y_(gpu, "y", Role::input, Dtype::bf16, {n_, d_}),
        z_(gpu, "z", Role::input, Dtype::bf16, {n_, stride_}),
        w_(gpu, "w", Role::input, Dtype::bf16, {d_}),
        dout_(gpu, "dout", Role::input, Dtype::bf16, {n_, d_}),
        out_(gpu, "out", Role::output, Dtype::bf16, {n_, d_}),
        dz_(gpu, "dz", Role::output, Dtype::bf16, {n_, stride_}),
        dw_(gpu, "dw", Role::output, Dtype::fp32, {d_}),
        room_(gpu, "workspace", Role::workspace, Dtype::uint8, {room_bytes_}),
        bound_{Bound(y_),   Bound(z_),  Bound(w_),  Bound(dout_),
               Bound(out_), Bound(dz_), Bound(dw_), Bound(room_)} {
    operands = {&y_, &z_, &w_, &out_};
    if (backward) operands.insert(operands.end(), {&dout_, &dz_, &dw_, &room_});
    for (Operand* one : {&y_, &z_, &w_, &dout_}) one->fill_normal(seed, 0, 1);
  }
  execution::Cost cost() const override {
    return backward_ ? kernels::gated_rmsnorm_backward_cost(n_, d_, Dtype::bf16)
                     : kernels::gated_rmsnorm_forward_cost(n_, d_, Dtype::bf16);
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    const auto& [y, z, w, dout, out, dz, dw, room] = bound_;
    const kernels::Columns gate{z, 0, d_}, dgate{dz, 0, d_};
    if (backward_)
      kernels::gated_rmsnorm_backward(queue, dout, y, gate, w, out, dgate, dw, room, groups_, kEps,
                                      false);
    else
      kernels::gated_rmsnorm_forward(queue, y, gate, w, out, groups_, kEps);
  }
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> y = y_.rows(0, kCheckedRows), z = z_.rows(0, kCheckedRows),
                              w = w_.values(), dout = dout_.rows(0, kCheckedRows);
    std::vector<double> out(y.size()), dz(z.size()), dw(w.size()), room(w.size() * kCheckedRows);
    const kernels::Matrix<const double> gate{z.data(), kCheckedRows, d_, stride_};
    const kernels::Matrix<double> dgate{dz.data(), kCheckedRows, d_, stride_};
    on_host([&] {
      if (backward_)
        kernels::gated_rmsnorm_backward_ref<double>(dout.data(), y.data(), gate, w.data(),
                                                    out.data(), dgate, dw.data(), room.data(),
                                                    groups_, kEps, false);
      else
        kernels::gated_rmsnorm_forward_ref<double>(y.data(), gate, w.data(), out.data(), groups_,
                                                   kEps);
    });
    const std::vector<double> ours = out_.rows(0, kCheckedRows);
    const std::string over = some_of(kCheckedRows, n_, "rows");
    std::vector<Agreement> all = {{backward_ ? "dy" : "out", relative_error(ours, out),
                                   row_tolerance(d_ / groups_), false, over}};
    if (backward_)
      all.push_back({"dz",
                     relative_error(first_columns(dz_.rows(0, kCheckedRows)), first_columns(dz)),
                     row_tolerance(d_ / groups_), false, over});
    return all;
  }

 private:
  /// The d columns of rows that are `stride` apart.
  std::vector<double> first_columns(const std::vector<double>& rows) const {
    std::vector<double> made;
    for (std::int64_t row = 0; row < kCheckedRows; ++row) {
      const auto at = rows.begin() + row * stride_;
      made.insert(made.end(), at, at + d_);
    }
    return made;
  }

  bool backward_;
  std::int64_t n_, d_, groups_, stride_, room_bytes_;
  Operand y_, z_, w_, dout_, out_, dz_, dw_, room_;  // out is dy in the backward
  std::array<Bound, 8> bound_;
};

template <class One, class... Arguments>
Entry entry(const char* name, const char* help, std::vector<Shape> shapes, Arguments... arguments) {
  return {.name = name,
          .help = help,
          .shapes = std::move(shapes),
          .implementations = {{"ours", "", ""}},
          .make = [=](Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
            return std::make_unique<One>(gpu, shape, seed, arguments...);
          }};
}

}  // namespace

std::vector<Entry> norm_entries() {
  const std::vector<Shape> rows = {Shape{{"n", 16384}, {"D", 2048}},
                                   Shape{{"n", 65536}, {"D", 768}},
                                   Shape{{"n", 16384}, {"D", 2688}}};
  const std::vector<Shape> gated = {Shape{{"n", 16384}, {"D", 4096}, {"G", 8}, {"stride", 10304}}};
  return {entry<RmsnormForward>("add_rmsnorm_forward", "sum, y and rstd of x + delta (n, D)", rows),
          entry<RmsnormBackward>("rmsnorm_backward", "dx with the residual's gradient, dw", rows),
          entry<Gated>("gated_rmsnorm_forward", "rmsnorm(y silu(z)) w in G groups", gated, false),
          entry<Gated>("gated_rmsnorm_backward", "dy, dz, dw of it", gated, true)};
}

}  // namespace stowage::drivers::bench
