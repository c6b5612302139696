// The equality matrix with documents of changing lengths. For a GPU (STOWAGE_TEST_CUDA) at sizes
// that reach the tensor-core kernels: heads of 64 and 128, a state of 128 in 8 groups, grouped
// products.
#include <gtest/gtest.h>

#include "matrix.hpp"

#if STOWAGE_TEST_CUDA
#include <cuda_runtime_api.h>

#include "execution/cuda_backend.hpp"
#endif

namespace stowage::ctest {
namespace {

using Documents = std::vector<std::vector<std::int32_t>>;

#if STOWAGE_TEST_CUDA

std::unique_ptr<execution::Backend> make_backend() { return execution::make_cuda_backend(); }

// Chunks of the scan and tiles of attention are 128 tokens: borders in them and between them.
constexpr std::int32_t kTokens = 1024;
constexpr std::size_t kBudgetPercent = 70;  // scratch is the larger part of these layers' memory
const Documents kPacked = {
    {0, 300, 301, 640, 1022}, {0, 1022}, {0, 1, 2, 130, 256, 257, 900, 1022}};

/// Layers of the standard decks, narrower, with as many heads and experts as show every path.
void enlarge(layers::TrainerOptions& options, int head_dim) {
  layers::ModelConfig& model = options.model;
  model.width = 256;
  model.vocabulary = 512;
  model.init_std = 0.05;
  model.attention = {4, 2, head_dim, true, {10000.0}};
  model.mamba = {.heads = 16, .head_dim = 64, .groups = 8, .state = 128, .chunk = 128};
  model.mlp.ffn = 512;
  model.moe = {.experts = 8, .topk = 2, .ffn = 256, .shared_ffn = 256, .scaling = 1.5};
  options.step.tokens = options.step.sequence = kTokens;
  options.capacities = {7};
  options.state.bucket_elements = 1 << 20;
}

#else

constexpr std::size_t kBudgetPercent = 60;

std::unique_ptr<execution::Backend> make_backend() { return execution::make_host_backend(); }

const Documents kPacked = {{0, 6, 7, 13, 21}, {0, 21}, {0, 1, 2, 5, 9, 10, 14, 21}};

void enlarge(layers::TrainerOptions& options, int head_dim) {
  options.model.attention.head_dim = head_dim / 16;
  options.capacities = {7};
}

#endif

/// @param documents of the steps in turn
Matrix make_matrix(int head_dim, const Documents& documents) {
  return Matrix{{.backend = make_backend,
                 .adjust = [=](layers::TrainerOptions& options) { enlarge(options, head_dim); },
                 .documents = documents,
                 .lr = 1e-3,
                 .budget_percent = kBudgetPercent,
                 .digest = true}};
}

/// Cells that move or compute again much at once: all modules, a half of each, within a budget.
std::vector<Cell> broad_cells() {
  std::vector<Cell> cells = pairwise_cells();
  std::erase_if(cells, [](const Cell& cell) {
    return cell.offload != "all" && cell.offload != "half" && cell.offload != "auto" &&
           cell.offload != "berths";
  });
  return cells;
}

class kernel_matrix : public testing::Test {
 protected:
#if STOWAGE_TEST_CUDA
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
  }
#endif
  static void check(int head_dim, const Documents& documents, const std::vector<Cell>& cells) {
    ASSERT_FALSE(cells.empty());
    Matrix matrix = make_matrix(head_dim, documents);
    for (const Cell& cell : cells) matrix.check(cell);
  }
};

TEST_F(kernel_matrix, every_pair_of_choices_with_changing_documents) {
  check(128, kPacked, pairwise_cells());
}

TEST_F(kernel_matrix, every_pair_of_choices_with_one_packing) {
  check(64, {kPacked.front()}, pairwise_cells());
}

TEST_F(kernel_matrix, broad_choices_with_changing_documents_and_small_heads) {
  check(64, kPacked, broad_cells());
}

TEST_F(kernel_matrix, broad_choices_with_one_document) { check(128, {kPacked[1]}, broad_cells()); }

TEST_F(kernel_matrix, knobs_of_timing_with_changing_documents) {
  check(128, kPacked, knob_cells());
}

// Equal bits of nothing would be no proof: other documents, or another rate, give other bits.
TEST_F(kernel_matrix, tells_other_steps_apart) {
  const auto after = [](const std::vector<std::int32_t>& documents, double lr) {
    layers::TrainerOptions options = tiny_options("M*-EM", execution::Dtype::bf16);
    enlarge(options, 64);
    TinyRun run(std::move(options), make_backend());
    run.set_documents(documents);
    for (int i = 0; i < 2; ++i) run.train(i, lr);
    return run.digest();
  };
  const auto once = after(kPacked[0], 1e-3);
  EXPECT_EQ(once, after(kPacked[0], 1e-3));
  EXPECT_NE(once, after(kPacked[2], 1e-3));
  EXPECT_NE(once, after(kPacked[0], 1.001e-3));
}

}  // namespace
}  // namespace stowage::ctest
