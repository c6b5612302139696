#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "execution/queue.hpp"
#include "kernels/linear/product_plan.hpp"

namespace stowage::run {

/// Sizes of a linear layer's product: y (m, n) = x (m, k) w (n, k)^T, row-major and dense.
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;

  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  /// Of x, w and y in bf16, each once.
  double bytes() const { return 2.0 * static_cast<double>(m * k + n * k + m * n); }
};

/// That product in bf16 with fp32 sums by cuBLASLt, by one of the algorithms that its heuristics
/// name: nothing is timed or chosen at launch.
class Gemm {
 public:
  /// Asks the heuristics for up to `candidates` algorithms, best first by their estimate.
  /// @throws Error if there is none
  explicit Gemm(GemmShape shape, int candidates = 1);

  int candidates() const { return plan_.candidates(); }
  /// Most that any candidate may ask for.
  static constexpr std::size_t kWorkspaceLimit = kernels::kProductWorkspaceBytes;

  /// @param workspace of kWorkspaceLimit bytes
  void enqueue(execution::Queue& queue, const void* x, const void* w, void* y, void* workspace,
               int candidate = 0) const;

  /// "cuBLASLt 13.0.2".
  static std::string version() { return kernels::product_library(); }

 private:
  kernels::ProductPlan plan_;
};

}  // namespace stowage::run
