#include "kernels/linear/product_plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <source_location>
#include <vector>

#include "execution/cuda_check.hpp"
#include "execution/error.hpp"
#include "kernels/linear/cublaslt.hpp"
#include "kernels/machine.hpp"

namespace stowage::kernels {
namespace {

using execution::Dtype;

constexpr std::uint32_t kLeastAlignment = 16;  // brings other algorithms to the front

static_assert(sizeof(ProductAlgorithm) == sizeof(cublasLtMatmulAlgo_t));

void check(cublasStatus_t code, const char* call,
           std::source_location at = std::source_location::current()) {
  if (code != CUBLAS_STATUS_SUCCESS)
    execution::throw_call_failed("cuBLASLt", call, static_cast<long long>(code),
                                 cublaslt().GetStatusString(code), at);
}

// One handle for each GPU, for the whole process: it holds no workspace and serves any stream.
cublasLtHandle_t library() {
  constexpr int kDevices = 64;
  static std::array<cublasLtHandle_t, kDevices> handles{};
  int device = 0;
  STOWAGE_CUDA(cudaGetDevice(&device));
  STOWAGE_ASSERT(device < kDevices, "GPU {}", device);
  cublasLtHandle_t& handle = handles[device];
  if (handle == nullptr) check(cublaslt().Create(&handle), "cublasLtCreate");
  return handle;
}

cudaDataType_t type(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return CUDA_R_16BF;
    case Dtype::fp32:
      return CUDA_R_32F;
    case Dtype::e4m3:
      return CUDA_R_8F_E4M3;
    case Dtype::e5m2:
      return CUDA_R_8F_E5M2;
    case Dtype::fp64:
    case Dtype::int32:
    case Dtype::int64:
    case Dtype::uint8:
      break;
  }
  execution::throw_no_form("a product on a GPU", dtype);
}

// A row-major (rows, columns) as the library sees it: a column-major (columns, rows).
cublasLtMatrixLayout_t layout(Dtype dtype, std::int64_t rows, std::int64_t columns,
                              std::int64_t stride, std::int64_t batch, std::int64_t batch_stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublaslt().MatrixLayoutCreate(&made, type(dtype), static_cast<std::uint64_t>(columns),
                                      static_cast<std::uint64_t>(rows), stride),
        "cublasLtMatrixLayoutCreate");
  if (batch == 1) return made;
  const auto count = static_cast<std::int32_t>(batch);
  check(cublaslt().MatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                            sizeof count),
        "cublasLtMatrixLayoutSetAttribute");
  check(cublaslt().MatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                            &batch_stride, sizeof batch_stride),
        "cublasLtMatrixLayoutSetAttribute");
  return made;
}

int attribute(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t name) {
  std::uint32_t value = 0;  // some are 16 bits wide: the rest stays zero
  std::size_t written = 0;
  if (cublaslt().MatmulAlgoConfigGetAttribute(&algorithm, name, &value, sizeof value, &written) ==
      CUBLAS_STATUS_SUCCESS)
    return static_cast<int>(value);
  std::uint16_t narrow = 0;
  check(cublaslt().MatmulAlgoConfigGetAttribute(&algorithm, name, &narrow, sizeof narrow, &written),
        "cublasLtMatmulAlgoConfigGetAttribute");
  return narrow;
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name,
         T value) {
  check(cublaslt().MatmulPreferenceSetAttribute(preference, name, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute");
}

}  // namespace

// The library is column-major: it computes c^T (n, m) = op(b)^T op(a)^T from the same bytes, so b
// is its first factor, and a matrix stored as its name says enters without transposition.
struct ProductPlan::State {
  ProductShape shape;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> found;

  explicit State(const ProductShape& s) : shape(s) {
    const bool ta = s.transpose_a == Transpose::yes, tb = s.transpose_b == Transpose::yes;
    check(cublaslt().MatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    const cublasOperation_t op_first = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_second = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    describe(CUBLASLT_MATMUL_DESC_TRANSA, op_first);
    describe(CUBLASLT_MATMUL_DESC_TRANSB, op_second);
    if (machine().left > 0)
      describe(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, std::int32_t{machine().multiprocessors});
    if (s.fast) describe(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
    first = layout(s.b, tb ? s.n : s.k, tb ? s.k : s.n, s.b_stride, s.batch, s.b_batch_stride);
    second = layout(s.a, ta ? s.k : s.m, ta ? s.m : s.k, s.a_stride, s.batch, s.a_batch_stride);
    result = layout(s.c, s.m, s.n, s.c_stride, s.batch, s.c_batch_stride);
  }
  ~State() {
    for (cublasLtMatrixLayout_t one : {first, second, result})
      if (one != nullptr) (void)cublaslt().MatrixLayoutDestroy(one);
    if (product != nullptr) (void)cublaslt().MatmulDescDestroy(product);
  }

  template <class T>
  void describe(cublasLtMatmulDescAttributes_t name, T value) const {
    check(cublaslt().MatmulDescSetAttribute(product, name, static_cast<const void*>(&value),
                                            sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }

  // What the library's heuristics name for this product, best first by their estimate.
  std::vector<cublasLtMatmulHeuristicResult_t> heuristics(int most, std::uint32_t alignment) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublaslt().MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        std::uint64_t{kProductWorkspaceBytes});
    // Partial sums of a split product in fp32 only: never rounded to bf16 on their way.
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    for (const auto operand :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(preference, operand, alignment);
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
    int count = 0;
    const cublasStatus_t code =
        cublaslt().MatmulAlgoGetHeuristic(library(), product, first, second, result, result,
                                          preference, most, results.data(), &count);
    (void)cublaslt().MatmulPreferenceDestroy(preference);
    if (code != CUBLAS_STATUS_NOT_SUPPORTED) check(code, "cublasLtMatmulAlgoGetHeuristic");
    results.resize(static_cast<std::size_t>(count));
    return results;
  }

  // Adds an algorithm that the library accepts for this product, once.
  void add(const cublasLtMatmulAlgo_t& algorithm) {
    for (const auto& one : found)
      if (std::memcmp(&one.algo, &algorithm, sizeof algorithm) == 0) return;
    cublasLtMatmulHeuristicResult_t accepted{};
    if (cublaslt().MatmulAlgoCheck(library(), product, first, second, result, result, &algorithm,
                                   &accepted) != CUBLAS_STATUS_SUCCESS ||
        accepted.workspaceSize > kProductWorkspaceBytes)
      return;
    accepted.algo = algorithm;
    found.push_back(accepted);
  }

  // The heuristics name few algorithms for a shape; those that they name for its neighbours, twice
  // as large or half as large in one extent, often serve it too, and some serve it better.
  void search() {
    constexpr int kMost = 32;
    for (const auto& one : heuristics(kMost, kLeastAlignment)) add(one.algo);
    for (std::int64_t ProductShape::*extent :
         {&ProductShape::m, &ProductShape::n, &ProductShape::k})
      for (const bool larger : {true, false}) {
        ProductShape other = shape;
        other.*extent = larger ? other.*extent * 2 : std::max<std::int64_t>(other.*extent / 2, 1);
        ProductShape near = dense_shape(other.m, other.n, other.k, other.transpose_a,
                                        other.transpose_b, other.a, other.c, other.accumulate);
        near.b = other.b;
        near.fast = other.fast;
        const State neighbour(near);
        for (const auto& one : neighbour.heuristics(kMost, kProductAlignment)) add(one.algo);
      }
  }
};

ProductPlan::ProductPlan(const ProductShape& shape, int candidates, std::uint32_t alignment)
    : state_(std::make_unique<State>(shape)) {
  State& s = *state_;
  s.found = s.heuristics(candidates, alignment);
  STOWAGE_ASSERT(!s.found.empty(), "cuBLASLt names no algorithm for {}", text(shape));
  if (candidates > 1) s.search();
  s.found.resize(std::min(s.found.size(), static_cast<std::size_t>(candidates)));
}

ProductPlan::ProductPlan(const ProductShape& shape, const ProductAlgorithm& algorithm)
    : state_(std::make_unique<State>(shape)) {
  State& s = *state_;
  cublasLtMatmulAlgo_t given;
  std::memcpy(&given, algorithm.data(), sizeof given);
  s.add(given);
  STOWAGE_ASSERT(!s.found.empty() || shape.batch > 1,
                 "{} does not accept the table's algorithm for {}", product_library(), text(shape));
}

ProductPlan::~ProductPlan() = default;

int ProductPlan::candidates() const { return static_cast<int>(state_->found.size()); }

ProductAlgorithm ProductPlan::algorithm(int candidate) const {
  ProductAlgorithm words;
  std::memcpy(words.data(), &state_->found.at(static_cast<std::size_t>(candidate)).algo,
              sizeof words);
  return words;
}

std::string ProductPlan::algorithm_text(int candidate) const {
  const auto& algo = state_->found.at(static_cast<std::size_t>(candidate)).algo;
  return fmt::format(
      "algo {}, tile {}, stages {}, split {}, reduction {}, swizzle {}, custom {}, inner {}, "
      "cluster {}",
      attribute(algo, CUBLASLT_ALGO_CONFIG_ID), attribute(algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
      attribute(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
      attribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
      attribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
      attribute(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
      attribute(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
      attribute(algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
      attribute(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
}

void ProductPlan::run(int candidate, const void* a, const void* b, void* c, void* workspace,
                      cudaStream_t stream, const ProductScales& scales) const {
  const State& s = *state_;
  if (scales.a != nullptr) s.describe(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.a);
  if (scales.b != nullptr) s.describe(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.b);
  const auto& found = s.found.at(static_cast<std::size_t>(candidate));
  const float one = 1, beta = s.shape.accumulate ? 1 : 0;
  check(cublaslt().Matmul(library(), s.product, &one, b, s.first, a, s.second, &beta, c, s.result,
                          c, s.result, &found.algo, workspace, found.workspaceSize, stream),
        "cublasLtMatmul");
}

std::size_t product_library_number() { return cublaslt().GetVersion(); }

std::string product_library() {
  const std::size_t v = product_library_number();
  return fmt::format("cuBLASLt {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

}  // namespace stowage::kernels
