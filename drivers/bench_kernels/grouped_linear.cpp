#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "drivers/bench_kernels/bound.hpp"
#include "drivers/bench_kernels/entries.hpp"
#include "execution/error.hpp"
#include "kernels/grouped_mlp/grouped_linear.hpp"
#include "kernels/linear/product_plan.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using kernels::Transpose;

constexpr std::int64_t kSampledRows = 16;

/// Rows of each expert: load 0, all alike; 1, as 1 / (e + 1) (Zipf, s = 1), in a mixed order; 2,
/// all for one expert.
std::vector<std::int32_t> offsets_of(std::int64_t experts, std::int64_t rows, std::int64_t load) {
  std::vector<double> share(static_cast<std::size_t>(experts), load == 2 ? 0 : 1);
  if (load == 1) {
    // 7 is prime to the powers of two that expert counts are: every expert has another place.
    for (std::size_t e = 0; e < share.size(); ++e)
      share[e * 7 % share.size()] = 1 / static_cast<double>(e + 1);
  }
  if (load == 2) share[share.size() / 3] = 1;
  const double whole = std::accumulate(share.begin(), share.end(), 0.0);
  std::vector<std::int32_t> offsets{0};
  double before = 0;
  for (const double part : share) {
    before += part;
    offsets.push_back(
        static_cast<std::int32_t>(std::lround(static_cast<double>(rows) * before / whole)));
  }
  return offsets;
}

/// A loop over the experts with cuBLASLt, one plan for each number of rows, captured in a graph.
class Loop {
 public:
  struct Product {
    kernels::ProductShape shape;
    const void* a;
    const void* b;
    void* c;
  };

  Loop(Gpu& gpu, const std::vector<Product>& products)
      : workspace_(gpu.device_memory(kernels::kProductWorkspaceBytes)) {
    for (const Product& p : products)
      if (!plans_.contains(p.shape)) plans_.try_emplace(p.shape, p.shape, 1);
    const auto stream = static_cast<cudaStream_t>(gpu.queue().stream());
    const auto run = [&] {
      for (const Product& p : products)
        plans_.at(p.shape).run(0, p.a, p.b, p.c, workspace_->data(), stream);
    };
    run();  // the library loads its kernels outside of the capture
    gpu.queue().synchronize();
    gpu.backend().begin_capture(gpu.queue());
    run();
    graph_ = gpu.backend().end_capture(gpu.queue());
  }

  void enqueue(execution::Queue& queue) { graph_->launch(queue); }

 private:
  std::map<kernels::ProductShape, kernels::ProductPlan> plans_;
  std::unique_ptr<execution::Arena> workspace_;
  std::unique_ptr<execution::Graph> graph_;
};

/// x (rows, K), w or dw (E, M, K), y or dy (rows, M), and the rows of each expert.
class GroupedCase : public Case {
 protected:
  GroupedCase(Gpu& gpu, const Shape& shape, std::int64_t seed, Role x, Role w, Role y)
      : experts_(shape["E"]),
        rows_(shape["rows"]),
        m_(shape["M"]),
        k_(shape["K"]),
        places_(offsets_of(experts_, rows_, shape["load"])),
        x_(gpu, x == Role::output ? "dx" : "x", x, Dtype::bf16, {rows_, k_}),
        w_(gpu, w == Role::output ? "dw" : "w", w, w == Role::output ? Dtype::fp32 : Dtype::bf16,
           {experts_, m_, k_}),
        y_(gpu, y == Role::output ? "y" : "dy", y, Dtype::bf16, {rows_, m_}),
        offsets_(gpu, "offsets", Role::input, Dtype::int32, {experts_ + 1}),
        bound_{Bound(x_), Bound(w_), Bound(y_), Bound(offsets_)} {
    if (x == Role::input) x_.fill_normal(seed, 0, 1);
    if (y == Role::input) y_.fill_normal(seed, 0, 1);
    w_.fill_normal(seed, 0, 0.02);
    offsets_.upload(places_.data());
    operands = {&x_, &w_, &y_, &offsets_};
  }

  void enqueue(const std::string& implementation, execution::Queue& queue) final {
    if (implementation == "cublas")
      loop_->enqueue(queue);
    else
      ours(queue);
  }
  virtual void ours(execution::Queue& queue) = 0;

  /// Rows [first, end) of an expert that has some, and its place in each matrix.
  struct Expert {
    std::int64_t index, first, rows;
  };
  std::vector<Expert> busy() const {
    std::vector<Expert> all;
    for (std::int64_t e = 0; e < experts_; ++e) {
      const auto at = static_cast<std::size_t>(e);
      if (places_[at + 1] > places_[at])
        all.push_back({e, places_[at], places_[at + 1] - places_[at]});
    }
    return all;
  }
  void* at(const Operand& operand, std::int64_t element) const {
    return operand.as<std::byte>() +
           element * static_cast<std::int64_t>(size_bytes(operand.dtype()));
  }
  std::int64_t expert_of(std::int64_t row) const {
    return std::upper_bound(places_.begin(), places_.end(), row) - places_.begin() - 1;
  }

  /// The errors of ours, and how they compare with the peer's once both are known.
  std::vector<Agreement> agree(const std::string& implementation, const std::string& what,
                               double error, double tolerance) {
    if (implementation == "ours") ours_error_ = error;
    std::vector<Agreement> all = {{what, error, tolerance}};
    if (implementation != "ours" && ours_error_ > 0)
      all.push_back({what + ".ratio", ours_error_ / error, 1.2, true});
    return all;
  }

  /// y or dx: rows spread over all experts, from `from` (rows, depth) and the experts' weights.
  std::vector<Agreement> check_rows(const std::string& implementation, const Operand& from,
                                    const Operand& to, bool transposed) {
    const std::int64_t columns = to.shape()[1], depth = from.shape()[1];
    std::vector<double> out, reference;
    for (std::int64_t i = 0; i < kSampledRows; ++i) {
      const std::int64_t row = i * (rows_ - 1) / (kSampledRows - 1);
      const std::vector<double> a = from.rows(row, 1), made = to.rows(row, 1);
      const std::vector<double> b = w_.rows(expert_of(row), 1);
      out.insert(out.end(), made.begin(), made.end());
      std::vector<double> sums(static_cast<std::size_t>(columns));
      for (std::int64_t j = 0; j < columns; ++j)
        for (std::int64_t l = 0; l < depth; ++l)
          sums[static_cast<std::size_t>(j)] +=
              a[static_cast<std::size_t>(l)] *
              b[static_cast<std::size_t>(transposed ? l * columns + j : j * depth + l)];
      reference.insert(reference.end(), sums.begin(), sums.end());
    }
    return agree(implementation, to.name(), relative_error(out, reference),
                 execution::epsilon(Dtype::bf16));
  }

  std::int64_t experts_, rows_, m_, k_;
  std::vector<std::int32_t> places_;
  Operand x_, w_, y_, offsets_;
  std::array<Bound, 4> bound_;
  std::unique_ptr<Loop> loop_;
  double ours_error_ = 0;
};

class Forward final : public GroupedCase {
 public:
  Forward(Gpu& gpu, const Shape& shape, std::int64_t seed)
      : GroupedCase(gpu, shape, seed, Role::input, Role::input, Role::output) {
    std::vector<Loop::Product> products;
    for (const Expert& e : busy())
      products.push_back({kernels::dense_shape(e.rows, m_, k_, Transpose::no, Transpose::yes,
                                               Dtype::bf16, Dtype::bf16, false),
                          at(x_, e.first * k_), at(w_, e.index * m_ * k_), at(y_, e.first * m_)});
    loop_ = std::make_unique<Loop>(gpu, products);
  }
  execution::Cost cost() const override {
    return kernels::grouped_linear_forward_cost(rows_, experts_, m_, k_, Dtype::bf16);
  }
  void ours(execution::Queue& queue) override {
    const auto& [x, w, y, offsets] = bound_;
    kernels::grouped_linear_forward(queue, x, w, offsets, y);
  }
  std::vector<Agreement> check(const std::string& implementation) override {
    return check_rows(implementation, x_, y_, false);
  }
};

class BackwardInput final : public GroupedCase {
 public:
  BackwardInput(Gpu& gpu, const Shape& shape, std::int64_t seed)
      : GroupedCase(gpu, shape, seed, Role::output, Role::input, Role::input) {
    std::vector<Loop::Product> products;
    for (const Expert& e : busy())
      products.push_back({kernels::dense_shape(e.rows, k_, m_, Transpose::no, Transpose::no,
                                               Dtype::bf16, Dtype::bf16, false),
                          at(y_, e.first * m_), at(w_, e.index * m_ * k_), at(x_, e.first * k_)});
    loop_ = std::make_unique<Loop>(gpu, products);
  }
  execution::Cost cost() const override {
    return kernels::grouped_linear_backward_input_cost(rows_, experts_, m_, k_, Dtype::bf16, false);
  }
  void ours(execution::Queue& queue) override {
    const auto& [x, w, y, offsets] = bound_;
    kernels::grouped_linear_backward_input(queue, y, w, offsets, x);
  }
  std::vector<Agreement> check(const std::string& implementation) override {
    return check_rows(implementation, y_, x_, true);
  }
};

/// Stored, or with accumulate = 1 added to what is there; checked storing.
class BackwardWeight final : public GroupedCase {
 public:
  BackwardWeight(Gpu& gpu, const Shape& shape, std::int64_t seed)
      : GroupedCase(gpu, shape, seed, Role::input, Role::output, Role::input),
        accumulate_(shape["accumulate"] != 0) {
    std::vector<Loop::Product> products;
    for (const Expert& e : busy())
      products.push_back({kernels::dense_shape(m_, k_, e.rows, Transpose::yes, Transpose::no,
                                               Dtype::bf16, Dtype::fp32, accumulate_),
                          at(y_, e.first * m_), at(x_, e.first * k_), at(w_, e.index * m_ * k_)});
    loop_ = std::make_unique<Loop>(gpu, products);
    if (accumulate_) operands = {&x_, &y_, &offsets_};  // dw is not poisoned
  }
  execution::Cost cost() const override {
    return kernels::grouped_linear_backward_weight_cost(rows_, experts_, m_, k_, Dtype::bf16,
                                                        accumulate_);
  }
  void ours(execution::Queue& queue) override {
    const auto& [x, w, y, offsets] = bound_;
    kernels::grouped_linear_backward_weight(queue, y, x, offsets, w, accumulate_);
  }

  // Rows of dw of experts that have rows. fp32 sums: 4 roundings for each sqrt(row).
  std::vector<Agreement> check(const std::string& implementation) override {
    if (accumulate_) return {};
    const std::vector<Expert> experts = busy();
    std::vector<double> out, reference;
    std::vector<double> x, dy;
    std::int64_t loaded = -1;
    double most = 1;
    for (std::int64_t i = 0; i < kSampledRows; ++i) {
      const Expert& e = experts[static_cast<std::size_t>(i) * experts.size() / kSampledRows];
      const std::int64_t row = i * (m_ - 1) / (kSampledRows - 1);
      most = std::max(most, static_cast<double>(e.rows));
      if (e.index != loaded) {
        x = x_.rows(e.first, e.rows);
        dy = y_.rows(e.first, e.rows);
        loaded = e.index;
      }
      const std::vector<double> made = w_.rows(e.index, 1);
      std::vector<double> sums(static_cast<std::size_t>(k_));
      for (std::int64_t r = 0; r < e.rows; ++r)
        for (std::int64_t j = 0; j < k_; ++j)
          sums[static_cast<std::size_t>(j)] +=
              dy[static_cast<std::size_t>(r * m_ + row)] * x[static_cast<std::size_t>(r * k_ + j)];
      out.insert(out.end(), made.begin() + row * k_, made.begin() + (row + 1) * k_);
      reference.insert(reference.end(), sums.begin(), sums.end());
    }
    return agree(implementation, "dw", relative_error(out, reference),
                 4 * execution::epsilon(Dtype::fp32) * std::sqrt(most));
  }

 private:
  bool accumulate_;
};

/// Both products of one layer: D wide, F between.
std::vector<Shape> shapes(bool weight) {
  std::vector<Shape> all;
  for (const auto& [e, rows, d, f] :
       std::vector<std::array<std::int64_t, 4>>{{64, 32768, 2048, 1408},
                                                {128, 49152, 2688, 1856},
                                                {32, 65536, 2048, 1024},
                                                {16, 16384, 2048, 5632},
                                                {8, 16384, 4096, 14336}})
    for (const bool second : {false, true})
      for (const std::int64_t accumulate : {0, 1}) {
        const std::int64_t m = second ? d : f, k = second ? f : d;
        if (weight)
          all.push_back({{"E", e},
                         {"rows", rows},
                         {"M", m},
                         {"K", k},
                         {"load", 0},
                         {"accumulate", accumulate}});
        else if (accumulate == 0)
          all.push_back({{"E", e}, {"rows", rows}, {"M", m}, {"K", k}, {"load", 0}});
      }
  return all;
}

template <class One>
Entry entry(const char* name, const char* help, bool weight = false) {
  return {.name = name,
          .help = help,
          .shapes = shapes(weight),
          .implementations = {{"ours", "", ""}, {"cublas", kernels::product_library(), ""}},
          .make = [](Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
            return std::make_unique<One>(gpu, shape, seed);
          }};
}

}  // namespace

std::vector<Entry> grouped_linear_entries() {
  return {entry<Forward>("grouped_linear_forward",
                         "y (rows, M) = x w[e]^T, w (E, M, K), bf16; peer: a loop in a graph"),
          entry<BackwardInput>("grouped_linear_backward_input", "dx (rows, K) = dy w[e], bf16"),
          entry<BackwardWeight>("grouped_linear_backward_weight",
                                "dw[e] (M, K) fp32 = dy^T x over an expert's rows", true)};
}

}  // namespace stowage::drivers::bench
