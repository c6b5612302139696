#include <algorithm>

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/grouped_case.hpp"
#include "kernels/grouped_mlp/grouped_linear.hpp"
#include "kernels/grouped_mlp/grouped_mlp.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using kernels::Activation;

Activation kind_of(const Shape& shape) {
  return shape["swiglu"] != 0 ? Activation::swiglu : Activation::squared_relu;
}

/// E, rows, D, F as x, w and y of a product have them.
Shape product_shape(const Shape& shape, std::int64_t outputs, std::int64_t inputs) {
  return {{"E", shape["E"]},
          {"rows", shape["rows"]},
          {"M", outputs},
          {"K", inputs},
          {"load", shape["load"]}};
}

/// Errors of the sampled rows of a result, `made` by them.
class Compared {
 public:
  void add(const std::vector<double>& made, const std::vector<double>& reference) {
    made_.insert(made_.end(), made.begin(), made.end());
    reference_.insert(reference_.end(), reference.begin(), reference.end());
  }
  double error() const { return relative_error(made_, reference_); }

 private:
  std::vector<double> made_, reference_;
};

/// h = x w1[e]^T, a = row_weight * act(h). The peer's product leaves out a; "activation" is our
/// kernel for it, which the peer would need beside its product.
class Fc1 final : public GroupedCase {
 public:
  Fc1(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : GroupedCase(
            gpu,
            product_shape(shape, kernels::activation_width(kind_of(shape), shape["F"]), shape["D"]),
            seed, Role::input, Role::input, Role::output),
        kind_(kind_of(shape)),
        f_(shape["F"]),
        a_(gpu, "a", Role::output, Dtype::bf16, {rows_, f_}),
        row_weight_(gpu, "row_weight", Role::input, Dtype::fp32, {rows_}),
        more_{Bound(a_), Bound(row_weight_)},
        loop_(forward_loop(gpu)) {
    row_weight_.fill_normal(seed, 0.5, 0.1);
    operands.insert(operands.end(), {&a_, &row_weight_});
  }

  execution::Cost cost() const override { return busy_cost(op()); }
  execution::Cost cost_of(const std::string& implementation) const override {
    if (implementation == "cublas") return busy_cost(op().product());
    if (implementation == "activation") return op().activation().cost();
    return cost();
  }
  void enqueue(const std::string& implementation, execution::Queue& queue) override {
    const auto& [x, w, h, offsets] = bound_;
    const auto& [a, row_weight] = more_;
    if (implementation == "cublas")
      loop_->enqueue(queue);
    else if (implementation == "activation")
      op().activation().run(queue,
                            {.x = h, .row_weight = row_weight, .y = a, .valid_rows = offsets});
    else
      op().run(queue,
               {.x = x, .w1 = w, .offsets = offsets, .row_weight = row_weight, .h = h, .a = a});
  }
  std::vector<Agreement> check(const std::string& implementation) override {
    if (implementation == "activation") return {};  // it is tested with its own operator
    std::vector<Agreement> all = check_rows(implementation, x_, y_, false);
    if (implementation == "cublas") return all;
    Compared a;  // from h as stored: the activation amplifies its rounding
    for (std::int64_t i = 0; i < kSampledRows; ++i) {
      const std::int64_t row = i * (rows_ - 1) / (kSampledRows - 1);
      const std::vector<double> h = y_.rows(row, 1), weight = row_weight_.rows(row, 1);
      std::vector<double> expected(static_cast<std::size_t>(f_));
      kernels::ActivationForward{kind_, 1, f_, Dtype::fp64, true}.reference<double>(
          {.x = h.data(),
           .row_weight = weight.data(),
           .y = expected.data(),
           .valid_rows = nullptr});
      a.add(a_.rows(row, 1), expected);
    }
    all.push_back({"a", a.error(), execution::epsilon(Dtype::bf16), false,
                   some_of(kSampledRows, rows_, "rows")});
    return all;
  }

 private:
  kernels::GroupedFc1Forward op() const {
    return {.kind = kind_,
            .rows = rows_,
            .routed = rows_,
            .experts = experts_,
            .columns = f_,
            .width = k_,
            .storage = Dtype::bf16,
            .weighted = true};
  }

  Activation kind_;
  std::int64_t f_;
  Operand a_, row_weight_;
  std::array<Bound, 2> more_;
  std::unique_ptr<ExpertLoop> loop_;
};

/// dh, a and drow_weight from g = dy w2[e] and h. The peer's product leaves g; "activation" is our
/// kernel from there to dh and drow_weight.
class Fc2Backward final : public GroupedCase {
 public:
  Fc2Backward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : GroupedCase(gpu, product_shape(shape, shape["D"], shape["F"]), seed, Role::output,
                    Role::input, Role::input),
        kind_(kind_of(shape)),
        h_(gpu, "h", Role::input, Dtype::bf16, {rows_, kernels::activation_width(kind_, k_)}),
        dh_(gpu, "dh", Role::output, Dtype::bf16, h_.shape()),
        row_weight_(gpu, "row_weight", Role::input, Dtype::fp32, {rows_}),
        drow_weight_(gpu, "drow_weight", Role::output, Dtype::fp32, {rows_}),
        room_(gpu, "workspace", Role::workspace, Dtype::uint8,
              {static_cast<std::int64_t>(op().workspace_bytes())}),
        more_{Bound(h_), Bound(dh_), Bound(row_weight_), Bound(drow_weight_), Bound(room_)},
        loop_(backward_input_loop(gpu)) {
    h_.fill_normal(seed, 0, 1);
    row_weight_.fill_normal(seed, 0.5, 0.1);
    operands.insert(operands.end(), {&h_, &dh_, &row_weight_, &drow_weight_});
  }

  execution::Cost cost() const override { return busy_cost(op()); }
  execution::Cost cost_of(const std::string& implementation) const override {
    if (implementation == "cublas") return busy_cost(op().product());
    if (implementation == "activation") return op().activation().cost();
    return cost();
  }
  void enqueue(const std::string& implementation, execution::Queue& queue) override {
    const auto& [a, w, dy, offsets] = bound_;
    const auto& [h, dh, row_weight, drow_weight, room] = more_;
    if (implementation == "cublas")
      loop_->enqueue(queue);
    else if (implementation == "activation")
      op().activation().run(queue, {.dy = a,
                                    .x = h,
                                    .row_weight = row_weight,
                                    .dx = dh,
                                    .drow_weight = drow_weight,
                                    .valid_rows = offsets,
                                    .amax = {}});
    else
      op().run(queue, {.dy = dy,
                       .w2 = w,
                       .offsets = offsets,
                       .row_weight = row_weight,
                       .h = h,
                       .dh = dh,
                       .a = a,
                       .drow_weight = drow_weight,
                       .workspace = room});
  }
  std::vector<Agreement> check(const std::string& implementation) override {
    if (implementation == "activation") return {};
    if (implementation == "cublas") return check_rows(implementation, y_, x_, true);
    const Sampled& g = sample_products(y_, k_, true);
    Compared dh, a, drow_weight;
    for (std::size_t i = 0; i < g.rows.size(); ++i) {
      const std::vector<double> h = h_.rows(g.rows[i], 1), weight = row_weight_.rows(g.rows[i], 1);
      std::vector<double> dh_row(h.size()), a_row(g.values[i].size()), dweight(1);
      kernels::ActivationForward{kind_, 1, k_, Dtype::fp64, true}.reference<double>(
          {.x = h.data(), .row_weight = weight.data(), .y = a_row.data(), .valid_rows = nullptr});
      kernels::ActivationBackward{kind_, 1, k_, Dtype::fp64, true}.reference<double>(
          {.dy = g.values[i].data(),
           .x = h.data(),
           .row_weight = weight.data(),
           .dx = dh_row.data(),
           .drow_weight = dweight.data(),
           .valid_rows = nullptr,
           .amax = nullptr});
      dh.add(dh_.rows(g.rows[i], 1), dh_row);
      a.add(x_.rows(g.rows[i], 1), a_row);
      drow_weight.add(drow_weight_.rows(g.rows[i], 1), dweight);
    }
    const double eps = execution::epsilon(Dtype::bf16);  // g is rounded, and what is stored
    const std::string over = some_of(kSampledRows, rows_, "rows");
    return {{"dh", dh.error(), 2 * eps, false, over},
            {"a", a.error(), eps, false, over},
            {"drow_weight", drow_weight.error(), eps, false, over}};
  }

 private:
  kernels::GroupedFc2BackwardInput op() const {
    return {.kind = kind_,
            .rows = rows_,
            .routed = rows_,
            .experts = experts_,
            .columns = k_,
            .width = m_,
            .storage = Dtype::bf16,
            .weighted = true};
  }

  Activation kind_;
  Operand h_, dh_, row_weight_, drow_weight_, room_;
  std::array<Bound, 5> more_;
  std::unique_ptr<ExpertLoop> loop_;
};

template <class One>
Entry entry(const char* name, const char* help) {
  std::vector<Shape> shapes;
  for (const auto& [e, rows, d, f] : grouped_sizes())
    for (const std::int64_t swiglu : {0, 1})
      shapes.push_back(
          {{"E", e}, {"rows", rows}, {"D", d}, {"F", f}, {"swiglu", swiglu}, {"load", 0}});
  return {
      .name = name,
      .help = help,
      .shapes = std::move(shapes),
      .implementations = {{"ours", "", ""},
                          {"cublas", kernels::product_library(), "",
                           "one product for each expert, first of its heuristics, in a graph"},
                          {"activation", "", ""}},
      .make = [](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        return std::make_unique<One>(gpu, shape, seed);
      }};
}

}  // namespace

std::vector<Entry> grouped_mlp_entries() {
  return {entry<Fc1>("grouped_fc1_forward",
                     "h = x w1[e]^T, a = weight * act(h); peer: the product, its activation apart"),
          entry<Fc2Backward>("grouped_fc2_backward_input",
                             "dh, a, dweight from dy w2[e] and h; peer: the product")};
}

}  // namespace stowage::drivers::bench
