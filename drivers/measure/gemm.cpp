#include "drivers/measure/gemm.hpp"

#include <cublasLt.h>
#include <fmt/core.h>

#include <limits>
#include <source_location>
#include <vector>

#include "drivers/measure/timer.hpp"
#include "execution/error.hpp"
#include "results/statistics.hpp"

namespace stowage::drivers {
namespace {

void check(cublasStatus_t code, const char* call,
           std::source_location at = std::source_location::current()) {
  if (code != CUBLAS_STATUS_SUCCESS)
    execution::throw_call_failed("cuBLASLt", call, static_cast<long long>(code),
                                 cublasLtGetStatusString(code), at);
}

cublasLtMatrixLayout_t layout(std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, CUDA_R_16BF, static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), rows),
        "cublasLtMatrixLayoutCreate");
  return made;
}

}  // namespace

// cuBLASLt is column-major: it computes y^T (n, m) = w (n, k) x^T (k, m), where the bytes of w
// are a
// column-major (k, n), taken transposed, and those of x a column-major (k, m).
struct Gemm::State {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> found;

  ~State() {
    for (cublasLtMatrixLayout_t one : {w, x, y})
      if (one != nullptr) (void)cublasLtMatrixLayoutDestroy(one);
    if (product != nullptr) (void)cublasLtMatmulDescDestroy(product);
    if (handle != nullptr) (void)cublasLtDestroy(handle);
  }
};

Gemm::Gemm(GemmShape shape, int candidates) : state_(std::make_unique<State>()) {
  State& s = *state_;
  check(cublasLtCreate(&s.handle), "cublasLtCreate");
  check(cublasLtMatmulDescCreate(&s.product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check(cublasLtMatmulDescSetAttribute(s.product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                       sizeof transposed),
        "cublasLtMatmulDescSetAttribute");
  s.w = layout(shape.k, shape.n);
  s.x = layout(shape.k, shape.m);
  s.y = layout(shape.n, shape.m);

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const std::size_t limit = kWorkspaceLimit;
  cublasStatus_t code = cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit);
  s.found.resize(static_cast<std::size_t>(candidates));
  int count = 0;
  if (code == CUBLAS_STATUS_SUCCESS)
    code = cublasLtMatmulAlgoGetHeuristic(s.handle, s.product, s.w, s.x, s.y, s.y, preference,
                                          candidates, s.found.data(), &count);
  (void)cublasLtMatmulPreferenceDestroy(preference);
  check(code, "cublasLtMatmulAlgoGetHeuristic");
  s.found.resize(static_cast<std::size_t>(count));
  STOWAGE_ASSERT(count > 0, "cuBLASLt names no algorithm for m {} n {} k {}", shape.m, shape.n,
                 shape.k);
}

Gemm::~Gemm() = default;

int Gemm::candidates() const { return static_cast<int>(state_->found.size()); }

void Gemm::enqueue(execution::Queue& queue, const void* x, const void* w, void* y, void* workspace,
                   int candidate) const {
  const State& s = *state_;
  STOWAGE_ASSERT(candidate >= 0 && candidate < candidates(), "algorithm {} of {}", candidate,
                 candidates());
  const cublasLtMatmulHeuristicResult_t& found = s.found[static_cast<std::size_t>(candidate)];
  const float one = 1, zero = 0;
  check(
      cublasLtMatmul(s.handle, s.product, &one, w, s.w, x, s.x, &zero, y, s.y, y, s.y, &found.algo,
                     workspace, found.workspaceSize, static_cast<cudaStream_t>(queue.stream())),
      "cublasLtMatmul");
}

std::string Gemm::version() {
  const std::size_t v = cublasLtGetVersion();
  return fmt::format("cuBLASLt {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

int fastest_candidate(Timer& timer, const Gemm& gemm, const void* x, const void* w, void* y,
                      void* workspace) {
  constexpr int kSamples = 15;
  std::vector<Work> contenders;
  for (int candidate = 0; candidate < gemm.candidates(); ++candidate)
    contenders.push_back([=, &gemm](execution::Queue& queue) {
      gemm.enqueue(queue, x, w, y, workspace, candidate);
    });
  int fastest = 0;
  double best = std::numeric_limits<double>::infinity();
  const auto times = timer.alternate(contenders, kSamples);
  for (std::size_t candidate = 0; candidate < times.size(); ++candidate) {
    const double median = results::summarize(times[candidate]).median;
    if (median < best) {
      best = median;
      fastest = static_cast<int>(candidate);
    }
  }
  return fastest;
}

}  // namespace stowage::drivers
