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
  Forward(Gpu& gpu, const Shape& shape, std::int64_t seed)
      : ProductCase(gpu, shape, seed, Role::input, Role::input, Role::output) {
    loop_ = forward_loop(gpu);
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

class BackwardInput final : public ProductCase {
 public:
  BackwardInput(Gpu& gpu, const Shape& shape, std::int64_t seed)
      : ProductCase(gpu, shape, seed, Role::output, Role::input, Role::input) {
    loop_ = backward_input_loop(gpu);
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
class BackwardWeight final : public ProductCase {
 public:
  BackwardWeight(Gpu& gpu, const Shape& shape, std::int64_t seed)
      : ProductCase(gpu, shape, seed, Role::input, Role::output, Role::input),
        accumulate_(shape["accumulate"] != 0) {
    std::vector<ExpertLoop::Product> products;
    for (const Expert& e : busy())
      products.push_back({kernels::dense_shape(m_, k_, e.rows, Transpose::yes, Transpose::no,
                                               Dtype::bf16, Dtype::fp32, accumulate_),
                          at(y_, e.first * m_), at(x_, e.first * k_), at(w_, e.index * m_ * k_)});
    loop_ = std::make_unique<ExpertLoop>(gpu, products);
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

  // Rows of dw of experts that have rows. A tensor core adds 16 products a step and truncates (Fasi
  // et al., PeerJ CS 7:e330, 2021), half a last place toward zero on average: that is a bias, which
  // adds up over the steps. The partial sums grow as the square root of the rows, to 2/3 of the
  // last one on average, and half a last place is 0.72 of epsilon of a sum on average: 0.5 epsilon
  // for each step, and a few roundings where parts are added.
  std::vector<Agreement> check(const std::string& implementation) override {
    if (accumulate_) return {};
    if (sampled_.empty()) sample();
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
    const double steps = std::ceil(most / 16);
    return agree(implementation, "dw", relative_error(out, reference),
                 execution::epsilon(Dtype::fp32) * (0.5 * steps + 4));
  }

 private:
  /// A row of an expert's dw in fp64.
  struct Sample {
    Expert expert;
    std::int64_t row;
    std::vector<double> sums;
  };

  void sample() {
    const std::vector<Expert> experts = busy();
    std::vector<double> x, dy;
    std::int64_t loaded = -1;
    for (std::int64_t i = 0; i < kSampledRows; ++i) {
      const Expert& e = experts[static_cast<std::size_t>(i) * experts.size() / kSampledRows];
      if (e.index != loaded) {
        x = x_.rows(e.first, e.rows);
        dy = y_.rows(e.first, e.rows);
        loaded = e.index;
      }
      const std::int64_t row = i * (m_ - 1) / (kSampledRows - 1);
      Sample one{e, row, std::vector<double>(static_cast<std::size_t>(k_))};
      for (std::int64_t r = 0; r < e.rows; ++r) {
        const double factor = dy[static_cast<std::size_t>(r * m_ + row)];
        const double* line = x.data() + r * k_;
        for (std::size_t j = 0; j < one.sums.size(); ++j) one.sums[j] += factor * line[j];
      }
      sampled_.push_back(std::move(one));
    }
  }

  std::vector<Sample> sampled_;
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
