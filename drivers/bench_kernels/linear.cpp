#include "drivers/bench_kernels/entries.hpp"
#include "drivers/measure/gemm.hpp"
#include "drivers/measure/timer.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

constexpr int kCandidates = 16;
constexpr std::int64_t kSampledRows = 8;

/// y (n, M) = x (n, K) w (M, K)^T: cuBLASLt's first choice ("cublas"), and the fastest of all
/// that its
/// heuristics name ("cublas_search"): the limit for whoever writes or picks a product.
class LinearCase final : public Case {
 public:
  LinearCase(Gpu& gpu, const Shape& shape, std::int64_t seed)
      : sizes_{shape["n"], shape["M"], shape["K"]},
        x_(gpu, "x", Role::input, Dtype::bf16, {sizes_.m, sizes_.k}),
        w_(gpu, "w", Role::input, Dtype::bf16, {sizes_.n, sizes_.k}),
        y_(gpu, "y", Role::output, Dtype::bf16, {sizes_.m, sizes_.n}),
        workspace_(gpu.device_memory(Gemm::kWorkspaceLimit)),
        gemm_(sizes_, kCandidates) {
    operands = {&x_, &w_, &y_};
    x_.fill_normal(seed, 0, 1);
    w_.fill_normal(seed, 0, 0.02);
    Timer timer(gpu);
    fastest_ = fastest_candidate(timer, gemm_, x_.data(), w_.data(), y_.data(), workspace_->data());
  }

  execution::Cost cost() const override { return {sizes_.flops(), sizes_.bytes()}; }

  void enqueue(const std::string& implementation, execution::Queue& queue) override {
    gemm_.enqueue(queue, x_.data(), w_.data(), y_.data(), workspace_->data(),
                  implementation == "cublas" ? 0 : fastest_);
  }

  // Rows spread over y. One rounding to bf16 remains: half an ulp, 2^-9 at most, and fp32 sums.
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> w = w_.values();
    const auto k = static_cast<std::size_t>(sizes_.k);
    std::vector<double> out, reference;
    for (std::int64_t i = 0; i < kSampledRows; ++i) {
      const std::int64_t row = i * (sizes_.m - 1) / (kSampledRows - 1);
      const std::vector<double> x = x_.rows(row, 1);
      const std::vector<double> y = y_.rows(row, 1);
      out.insert(out.end(), y.begin(), y.end());
      for (std::size_t j = 0; j < y.size(); ++j) {
        double sum = 0;
        for (std::size_t l = 0; l < k; ++l) sum += x[l] * w[j * k + l];
        reference.push_back(sum);
      }
    }
    return {{"y", relative_error(out, reference), execution::epsilon(Dtype::bf16)}};
  }

 private:
  GemmShape sizes_;
  Operand x_, w_, y_;
  std::unique_ptr<execution::Arena> workspace_;
  Gemm gemm_;
  int fastest_ = 0;
};

Shape sizes(std::int64_t n, std::int64_t outputs, std::int64_t inputs) {
  return Shape{{"n", n}, {"M", outputs}, {"K", inputs}};
}

}  // namespace

Entry linear_forward_entry() {
  return {
      .name = "linear_forward",
      .help = "y (n, M) = x (n, K) w (M, K)^T, bf16 with fp32 sums",
      .shapes = {sizes(16384, 8192, 2048), sizes(16384, 2048, 8192), sizes(16384, 10304, 2048),
                 sizes(16384, 2048, 4096), sizes(16384, 3072, 2048), sizes(8192, 8192, 8192)},
      .implementations = {{"cublas", Gemm::version(), ""}, {"cublas_search", Gemm::version(), ""}},
      .make = [](Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        return std::make_unique<LinearCase>(gpu, shape, seed);
      }};
}

}  // namespace stowage::drivers::bench
