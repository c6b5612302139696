#include <algorithm>
#include <cmath>

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/grouped_case.hpp"
#include "kernels/grouped_mlp/grouped_linear.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using kernels::Transpose;

/// What the three products share: ours, and the loop.
class ProductCase : public GroupedCase {
 public:
  using GroupedCase::GroupedCase;
  void enqueue(const std::string& implementation, execution::Queue& queue) final {
    if (implementation == "cublas")
      loop_->enqueue(queue);
    else
      ours(queue);
  }

 protected:
  virtual void ours(execution::Queue& queue) = 0;

  std::unique_ptr<ExpertLoop> loop_;
};

class Forward final : public ProductCase {
 public:
  Forward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : ProductCase(gpu, shape, seed, Role::input, Role::input, Role::output) {
    loop_ = forward_loop(gpu);
  }
  execution::Cost cost() const override {
    return busy_cost(product<kernels::GroupedLinearForward>());
  }
  void ours(execution::Queue& queue) override {
    const auto& [x, w, y, offsets] = bound_;
    product<kernels::GroupedLinearForward>().run(queue,
                                                 {.x = x, .w = w, .offsets = offsets, .y = y});
  }
  std::vector<Agreement> check(const std::string& implementation) override {
    return check_rows(implementation, x_, y_, false);
  }
};

class BackwardInput final : public ProductCase {
 public:
  BackwardInput(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : ProductCase(gpu, shape, seed, Role::output, Role::input, Role::input) {
    loop_ = backward_input_loop(gpu);
  }
  execution::Cost cost() const override {
    return busy_cost(product<kernels::GroupedLinearBackwardInput>());
  }
  void ours(execution::Queue& queue) override {
    const auto& [x, w, y, offsets] = bound_;
    product<kernels::GroupedLinearBackwardInput>().run(
        queue, {.dy = y, .w = w, .offsets = offsets, .dx = x});
  }
  std::vector<Agreement> check(const std::string& implementation) override {
    return check_rows(implementation, y_, x_, true);
  }
};

/// Stored, or with accumulate = 1 added to what is there. What is stored is stored for all experts,
/// 0 for those without rows, by the peer too.
class BackwardWeight final : public ProductCase {
 public:
  BackwardWeight(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : ProductCase(gpu, shape, seed, Role::input,
                    shape["accumulate"] != 0 ? Role::update : Role::output, Role::input),
        accumulate_(shape["accumulate"] != 0) {
    std::vector<ExpertLoop::Product> products;
    for (const Expert& e : busy())
      products.push_back({kernels::dense_shape(m_, k_, e.rows, Transpose::yes, Transpose::no,
                                               Dtype::bf16, Dtype::fp32, accumulate_),
                          at(y_, e.first * m_), at(x_, e.first * k_), at(w_, e.index * m_ * k_)});
    loop_ = std::make_unique<ExpertLoop>(gpu, products, accumulate_ ? Cleared{} : idle());
    // What is added to is as large as what is added: a kernel that stores is far off.
    if (accumulate_)
      w_.fill_normal(seed, 0,
                     std::sqrt(static_cast<double>(rows_) / static_cast<double>(busy_count())));
    sample();
  }
  execution::Cost cost() const override { return accumulate_ ? busy_cost(op()) : op().cost(); }
  void ours(execution::Queue& queue) override {
    const auto& [x, w, y, offsets] = bound_;
    op().run(queue, {.dy = y, .x = x, .offsets = offsets, .dw = w});
  }

  // Rows of dw of experts that have rows; and of one that has none, where there is one.
  std::vector<Agreement> check(const std::string& implementation) override {
    std::vector<double> out, reference, dw;
    std::int64_t loaded = -1;
    double most = 1;
    for (const Sample& one : sampled_) {
      if (one.expert.index != loaded) dw = w_.rows(one.expert.index, 1);
      loaded = one.expert.index;
      most = std::max(most, static_cast<double>(one.expert.rows));
      out.insert(out.end(), dw.begin() + one.row * k_, dw.begin() + (one.row + 1) * k_);
      reference.insert(reference.end(), one.sums.begin(), one.sums.end());
    }
    std::vector<Agreement> all =
        agree(implementation, "dw", relative_error(out, reference), tensor_core_tolerance(most),
              some_of(kSampledRows, experts_ * m_, "rows"));
    if (busy_count() < experts_) all.push_back(check_idle());
    return all;
  }

 private:
  /// A row of an expert's dw in fp64.
  struct Sample {
    Expert expert;
    std::int64_t row;
    std::vector<double> sums;
  };

  using Cleared = std::vector<std::span<std::byte>>;

  kernels::GroupedLinearBackwardWeight op() const {
    auto op = product<kernels::GroupedLinearBackwardWeight>();
    op.accumulate = accumulate_;
    return op;
  }

  std::int64_t first_idle() const {
    std::int64_t e = 0;
    while (places_[static_cast<std::size_t>(e) + 1] > places_[e]) ++e;
    return e;
  }

  /// dw of the experts without rows.
  Cleared idle() const {
    Cleared all;
    const std::int64_t each = m_ * k_;
    for (std::int64_t e = 0; e < experts_; ++e)
      if (places_[static_cast<std::size_t>(e) + 1] == places_[e])
        all.emplace_back(static_cast<std::byte*>(at(w_, e * each)),
                         static_cast<std::size_t>(each) * size_bytes(w_.dtype()));
    return all;
  }

  /// Elements of an idle expert's dw that are neither 0 nor, where it is added to, what they were.
  Agreement check_idle() {
    const std::int64_t e = first_idle();
    const std::vector<double> made = w_.rows(e, 1);
    const std::vector<double> wanted =
        accumulate_ ? before_idle_ : std::vector<double>(made.size());
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < made.size(); ++i) wrong += made[i] != wanted[i];
    return {"dw.idle", static_cast<double>(wrong), 0, false, "one expert", "elements that differ"};
  }

  /// Before the first launch, while dw holds what is added to.
  void sample() {
    const std::vector<Expert> experts = busy();
    if (accumulate_ && busy_count() < experts_) before_idle_ = w_.rows(first_idle(), 1);
    std::vector<double> x, dy, dw;
    std::int64_t loaded = -1;
    for (std::int64_t i = 0; i < kSampledRows; ++i) {
      const Expert& e = experts[static_cast<std::size_t>(i) * experts.size() / kSampledRows];
      if (e.index != loaded) {
        x = x_.rows(e.first, e.rows);
        dy = y_.rows(e.first, e.rows);
        dw = accumulate_ ? w_.rows(e.index, 1) : std::vector<double>();
        loaded = e.index;
      }
      const std::int64_t row = i * (m_ - 1) / (kSampledRows - 1);
      Sample one{e, row, std::vector<double>(static_cast<std::size_t>(k_))};
      if (accumulate_) one.sums.assign(dw.begin() + row * k_, dw.begin() + (row + 1) * k_);
      for (std::int64_t r = 0; r < e.rows; ++r) {
        const double factor = dy[r * m_ + row];
        const double* line = x.data() + r * k_;
        for (std::size_t j = 0; j < one.sums.size(); ++j) one.sums[j] += factor * line[j];
      }
      sampled_.push_back(std::move(one));
    }
  }

  std::vector<Sample> sampled_;
  std::vector<double> before_idle_;
  bool accumulate_;
};

/// Both products of each layer, evenly loaded; the first with the other loads as well.
std::vector<Shape> shapes(bool weight) {
  std::vector<Shape> all;
  for (const auto& [e, rows, d, f] : grouped_sizes())
    for (const bool second : {false, true})
      for (const std::int64_t load : {0, 1, 2}) {
        if (second && load != 0) continue;
        Shape shape{
            {"E", e}, {"rows", rows}, {"M", second ? d : f}, {"K", second ? f : d}, {"load", load}};
        if (!weight) {
          all.push_back(shape);
          continue;
        }
        for (const std::int64_t accumulate : {0, 1}) {
          shape = Shape{{"E", e},
                        {"rows", rows},
                        {"M", second ? d : f},
                        {"K", second ? f : d},
                        {"load", load},
                        {"accumulate", accumulate}};
          all.push_back(shape);
        }
      }
  return all;
}

template <class One>
Entry entry(const char* name, const char* help, bool weight = false) {
  return {
      .name = name,
      .help = help,
      .shapes = shapes(weight),
      .implementations = {{"ours", "", ""},
                          {"cublas", kernels::product_library(), "",
                           "one product for each expert, first of its heuristics, in a graph"}},
      .make = [](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
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
