#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>

#include "drivers/bench_kernels/bound.hpp"
#include "drivers/bench_kernels/entries.hpp"
#include "kernels/grouped_mlp/grouped_linear.hpp"
#include "kernels/grouped_mlp/grouped_mlp.hpp"
#include "kernels/linear/linear.hpp"
#include "kernels/moe/permute.hpp"
#include "kernels/moe/router.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;
using kernels::Activation;
using Values = std::vector<double>;

constexpr Dtype kS = Dtype::bf16;
constexpr Dtype kA = Dtype::fp32;

/// A layer of experts from the router to the combined output and back, by the operators that
/// layers/mixers/moe.cpp records, in its order; squared ReLU, no shared expert. The whole runs from
/// a graph and counts the flops of the experts' six products and of the router's three; the other
/// implementations are its parts.
class MoeLayer final : public Case {
 public:
  MoeLayer(Gpu& gpu, const Shape& shape, std::int64_t seed)
      : gpu_(gpu),
        n_(shape["T"]),
        d_(shape["D"]),
        f_(shape["F"]),
        rows_(n_ * shape["R"]),
        accumulate_(shape["accumulate"] != 0) {
    options_.experts = static_cast<int>(shape["E"]);
    options_.topk = static_cast<int>(shape["R"]);
    make_operands(seed);
    record_forward();
    record_backward();
    for (const bool backward : {false, true})
      for (const Part& part : parts_)
        if (part.backward == backward) part.enqueue(gpu.queue());
    gpu.queue().synchronize();
    gpu.backend().begin_capture(gpu.queue());
    for (const Part& part : parts_) part.enqueue(gpu.queue());
    whole_ = gpu.backend().end_capture(gpu.queue());
    operands = {&find("x"), &find("dy"), &find("y"), &find("dx")};
  }

  Cost cost() const override { return cost_of("ours"); }
  Cost cost_of(const std::string& implementation) const override {
    Cost sum;
    for (const Part& part : parts_)
      if (runs(part, implementation)) sum = sum + part.cost;
    return sum;
  }

  void enqueue(const std::string& implementation, Queue& queue) override {
    if (implementation == "ours") return whole_->launch(queue);
    for (const Part& part : parts_)
      if (runs(part, implementation)) part.enqueue(queue);
  }

  std::vector<Agreement> check(const std::string& implementation) override;

 private:
  struct Part {
    std::string name;
    bool backward;
    Cost cost;
    std::function<void(Queue&)> enqueue;
  };
  struct Tensor {
    Operand operand;
    Bound bound;
    Tensor(Gpu& gpu, const std::string& name, Role role, Dtype dtype,
           std::vector<std::int64_t> shape)
        : operand(gpu, name, role, dtype, std::move(shape)), bound(operand) {}
  };

  static bool runs(const Part& part, const std::string& implementation) {
    return implementation == "ours" || implementation == part.name ||
           implementation == (part.backward ? "backward" : "forward");
  }
  Operand& find(const std::string& name) {
    return std::ranges::find(tensors_, name, [](const Tensor& t) { return t.operand.name(); })
        ->operand;
  }
  View at(const std::string& name) {
    return std::ranges::find(tensors_, name, [](const Tensor& t) { return t.operand.name(); })
        ->bound.view();
  }
  std::vector<std::int32_t> integers(const std::string& name) {
    const std::vector<std::byte> bytes = find(name).download();
    const auto* first = reinterpret_cast<const std::int32_t*>(bytes.data());
    return {first, first + find(name).elements()};
  }

  void make_operands(std::int64_t seed);
  void record_forward();
  void record_backward();
  void add(const char* name, bool backward, Cost cost, std::function<void(Queue&)> enqueue) {
    parts_.push_back({name, backward, cost, std::move(enqueue)});
  }
  void reference(std::int64_t token, Values& y, Values& dx);

  Gpu& gpu_;
  std::int64_t n_, d_, f_, rows_;
  bool accumulate_;
  kernels::RouterOptions options_;
  std::deque<Tensor> tensors_;
  std::vector<Part> parts_;
  std::unique_ptr<execution::Graph> whole_;
};

void MoeLayer::make_operands(std::int64_t seed) {
  const std::int64_t e = options_.experts, r = options_.topk;
  const auto make = [&](const char* name, Dtype dtype, std::vector<std::int64_t> shape,
                        Role role = Role::workspace) -> Operand& {
    return tensors_.emplace_back(gpu_, name, role, dtype, std::move(shape)).operand;
  };
  make("x", kS, {n_, d_}, Role::input).fill_normal(seed, 0, 1);
  make("dy", kS, {n_, d_}, Role::input).fill_normal(seed, 0, 1);
  make("router", kS, {e, d_}).fill_normal(seed, 0, 0.02);
  make("w1", kS, {e, f_, d_}).fill_normal(seed, 0, 0.02);
  make("w2", kS, {e, d_, f_}).fill_normal(seed, 0, 0.02);
  const std::int32_t ends[] = {0, static_cast<std::int32_t>(n_)};
  make("cu_seqlens", Dtype::int32, {2}).upload(ends);
  make("logits", kA, {n_, e});
  make("indices", Dtype::int32, {n_, r});
  make("weights", kA, {n_, r});
  make("offsets", Dtype::int32, {e + 1});
  make("token_row", Dtype::int32, {n_, r});
  make("row_weight", kA, {rows_});
  for (const char* name : {"sorted", "out", "drows", "dsorted"}) make(name, kS, {rows_, d_});
  for (const char* name : {"h", "a", "dh", "a_again"}) make(name, kS, {rows_, f_});
  make("drow_weight", kA, {rows_});
  make("room", Dtype::uint8,
       {static_cast<std::int64_t>(
           kernels::grouped_fc2_backward_input_workspace_bytes(rows_, f_, kS))});
  make("dw1", kA, {e, f_, d_}).fill_normal(seed, 0, 0.02);
  make("dw2", kA, {e, d_, f_}).fill_normal(seed, 0, 0.02);
  make("dlogits", kA, {n_, e});
  make("drouter", kA, {e, d_}).fill_normal(seed, 0, 0.02);
  make("y", kS, {n_, d_}, Role::output);
  make("dx", kS, {n_, d_}, Role::output);
}

void MoeLayer::record_forward() {
  const std::int64_t e = options_.experts, r = options_.topk;
  add("router", false,
      kernels::linear_forward_cost(n_, e, d_, kS, kA) +
          kernels::router_select_cost(n_, options_, kA, true),
      [this, x = at("x"), w = at("router"), logits = at("logits"), ends = at("cu_seqlens"),
       indices = at("indices"), weights = at("weights")](Queue& q) {
        kernels::linear_forward(q, x, w, logits);
        kernels::router_select(q, options_, logits, {}, ends, indices, weights);
      });
  add("permute_index", false, kernels::permute_index_cost(n_, r, e, kA),
      [indices = at("indices"), offsets = at("offsets"), token_row = at("token_row"),
       row_weight = at("row_weight"), weights = at("weights")](Queue& q) {
        kernels::permute_index(q, indices, offsets, token_row, row_weight, weights);
      });
  add("gather", false, kernels::gather_rows_cost(n_, r, n_ * r, d_, kS),
      [x = at("x"), token_row = at("token_row"), sorted = at("sorted")](Queue& q) {
        kernels::gather_rows(q, x, token_row, sorted);
      });
  add("fc1", false,
      kernels::grouped_fc1_forward_cost(Activation::squared_relu, rows_, e, f_, d_, kS),
      [sorted = at("sorted"), w = at("w1"), offsets = at("offsets"), weight = at("row_weight"),
       h = at("h"), a = at("a")](Queue& q) {
        kernels::grouped_fc1_forward(q, Activation::squared_relu, sorted, w, offsets, weight, h, a);
      });
  add("fc2", false, kernels::grouped_linear_forward_cost(rows_, e, d_, f_, kS),
      [a = at("a"), w = at("w2"), offsets = at("offsets"), out = at("out")](Queue& q) {
        kernels::grouped_linear_forward(q, a, w, offsets, out);
      });
  add("combine", false, kernels::combine_rows_cost(n_, r, n_ * r, d_, kS, false),
      [out = at("out"), token_row = at("token_row"), y = at("y")](Queue& q) {
        kernels::combine_rows(q, out, token_row, y, false);
      });
}

void MoeLayer::record_backward() {
  const std::int64_t e = options_.experts, r = options_.topk;
  const Cost gather = kernels::gather_rows_cost(n_, r, n_ * r, d_, kS);
  const bool more = accumulate_;
  add("gather_dy", true, gather,
      [dy = at("dy"), token_row = at("token_row"), drows = at("drows")](Queue& q) {
        kernels::gather_rows(q, dy, token_row, drows);
      });
  add("fc2_backward", true,
      kernels::grouped_fc2_backward_input_cost(Activation::squared_relu, rows_, e, f_, d_, kS),
      [drows = at("drows"), w = at("w2"), offsets = at("offsets"), weight = at("row_weight"),
       h = at("h"), dh = at("dh"), a = at("a_again"), dweight = at("drow_weight"),
       room = at("room")](Queue& q) {
        kernels::grouped_fc2_backward_input(q, Activation::squared_relu,
                                            {.dy = drows,
                                             .w2 = w,
                                             .offsets = offsets,
                                             .row_weight = weight,
                                             .h = h,
                                             .dh = dh,
                                             .a = a,
                                             .drow_weight = dweight,
                                             .workspace = room});
      });
  add("fc2_weight", true, kernels::grouped_linear_backward_weight_cost(rows_, e, d_, f_, kS, more),
      [more, drows = at("drows"), a = at("a_again"), offsets = at("offsets"), dw = at("dw2")](
          Queue& q) { kernels::grouped_linear_backward_weight(q, drows, a, offsets, dw, more); });
  add("gather_again", true, gather,
      [x = at("x"), token_row = at("token_row"), sorted = at("sorted")](Queue& q) {
        kernels::gather_rows(q, x, token_row, sorted);
      });
  add("fc1_weight", true, kernels::grouped_linear_backward_weight_cost(rows_, e, f_, d_, kS, more),
      [more, dh = at("dh"), sorted = at("sorted"), offsets = at("offsets"), dw = at("dw1")](
          Queue& q) { kernels::grouped_linear_backward_weight(q, dh, sorted, offsets, dw, more); });
  add("fc1_backward", true,
      kernels::grouped_linear_backward_input_cost(rows_, e, f_, d_, kS, false),
      [dh = at("dh"), w = at("w1"), offsets = at("offsets"), dsorted = at("dsorted")](Queue& q) {
        kernels::grouped_linear_backward_input(q, dh, w, offsets, dsorted);
      });
  add("combine_dx", true, kernels::combine_rows_cost(n_, r, n_ * r, d_, kS, false),
      [dsorted = at("dsorted"), token_row = at("token_row"), dx = at("dx")](Queue& q) {
        kernels::combine_rows(q, dsorted, token_row, dx, false);
      });
  add("router_backward", true,
      kernels::router_backward_cost(n_, options_, kA) +
          kernels::linear_backward_cost(n_, e, d_, kS, kA, true, more),
      [this, more, dweight = at("drow_weight"), token_row = at("token_row"), logits = at("logits"),
       indices = at("indices"), weights = at("weights"), offsets = at("offsets"),
       ends = at("cu_seqlens"), dlogits = at("dlogits"), x = at("x"), dw = at("drouter"),
       w = at("router"), dx = at("dx")](Queue& q) {
        kernels::router_backward(q, options_, dweight, token_row, logits, indices, weights, offsets,
                                 ends, dlogits);
        kernels::linear_backward(q, dlogits, x, w, dx, true, dw, more);
      });
}

/// y and dx of one token in fp64, from the experts that the device chose for it.
void MoeLayer::reference(std::int64_t token, Values& y, Values& dx) {
  const std::int64_t e_count = options_.experts, r = options_.topk;
  const Values x = find("x").rows(token, 1), dy = find("dy").rows(token, 1);
  const Values router = find("router").values();
  const std::vector<std::int32_t> all = integers("indices");
  const std::vector<std::int32_t> indices(all.begin() + token * r, all.begin() + (token + 1) * r);
  Values logits(static_cast<std::size_t>(e_count)), weights(static_cast<std::size_t>(r));
  Values dweights(weights.size()), dlogits(logits.size());
  y.assign(x.size(), 0);
  dx.assign(x.size(), 0);
  const auto dot = [](const double* a, const double* b, std::int64_t n) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
  };
  const auto axpy = [](double factor, const double* a, Values& sums) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += factor * a[i];
  };
  for (std::int64_t e = 0; e < e_count; ++e) logits[e] = dot(router.data() + e * d_, x.data(), d_);
  kernels::router_weights_ref(1, options_, logits.data(), indices.data(), weights.data());
  std::vector<std::int32_t> places;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    places.push_back(static_cast<std::int32_t>(i));
    const Values w1 = find("w1").rows(indices[i], 1), w2 = find("w2").rows(indices[i], 1);
    Values h(static_cast<std::size_t>(f_)), g(h.size()), a(h.size()), dh(h.size());
    for (std::int64_t j = 0; j < f_; ++j) h[j] = dot(w1.data() + j * d_, x.data(), d_);
    for (std::int64_t j = 0; j < d_; ++j) axpy(dy[j], w2.data() + j * f_, g);
    kernels::activation_forward_ref<double>(Activation::squared_relu, 1, f_, h.data(), &weights[i],
                                            a.data(), nullptr);
    kernels::activation_backward_ref<double>(Activation::squared_relu, 1, f_, g.data(), h.data(),
                                             &weights[i], dh.data(), &dweights[i], nullptr);
    for (std::int64_t j = 0; j < d_; ++j) y[j] += dot(w2.data() + j * f_, a.data(), f_);
    for (std::int64_t j = 0; j < f_; ++j) axpy(dh[j], w1.data() + j * d_, dx);
  }
  const std::vector<std::int32_t> offsets(static_cast<std::size_t>(e_count) + 1);
  const std::int32_t routed = 1;
  kernels::router_backward_ref(1, options_, dweights.data(), places.data(), logits.data(),
                               indices.data(), weights.data(), offsets.data(), &routed,
                               dlogits.data());
  for (std::int64_t e = 0; e < e_count; ++e) axpy(dlogits[e], router.data() + e * d_, dx);
}

std::vector<Agreement> MoeLayer::check(const std::string& implementation) {
  if (implementation != "ours") return {};  // its parts are checked as operators
  constexpr std::int64_t kTokens = 4;
  Values y, dx, y_ref, dx_ref;
  const auto append = [](Values& to, const Values& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (std::int64_t i = 0; i < kTokens; ++i) {
    const std::int64_t token = i * (n_ - 1) / (kTokens - 1);
    Values one_y, one_dx;
    reference(token, one_y, one_dx);
    append(y_ref, one_y);
    append(dx_ref, one_dx);
    append(y, find("y").rows(token, 1));
    append(dx, find("dx").rows(token, 1));
  }
  // Rounded on the way: h, a, rows, y; dh as well, and dx twice.
  const double eps = execution::epsilon(kS);
  return {{"y", relative_error(y, y_ref), 4 * eps}, {"dx", relative_error(dx, dx_ref), 6 * eps}};
}

}  // namespace

Entry moe_layer_entry() {
  std::vector<Implementation> implementations;
  for (const char* name :
       {"ours", "forward", "backward", "router", "permute_index", "gather", "fc1", "fc2", "combine",
        "gather_dy", "fc2_backward", "fc2_weight", "gather_again", "fc1_weight", "fc1_backward",
        "combine_dx", "router_backward"})
    implementations.push_back({name, "", ""});
  std::vector<Shape> shapes;
  for (const std::int64_t accumulate : {0, 1})
    for (const auto& [t, e, r, d, f] : std::vector<std::array<std::int64_t, 5>>{
             {8192, 128, 6, 2688, 1856}, {16384, 32, 4, 2048, 1024}})
      shapes.push_back(
          {{"T", t}, {"E", e}, {"R", r}, {"D", d}, {"F", f}, {"accumulate", accumulate}});
  return {.name = "moe_layer",
          .help = "experts from the router to the combined output and back, and its parts",
          .shapes = std::move(shapes),
          .implementations = std::move(implementations),
          .make = [](Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
            return std::make_unique<MoeLayer>(gpu, shape, seed);
          }};
}

}  // namespace stowage::drivers::bench
