// The equality matrix with documents of random lengths, others in every step and microbatch, by
// programs of several capacities. For a GPU (STOWAGE_TEST_CUDA) at sizes that reach the tensor-core
// kernels: heads of 64 and 128, a state of 128 in 8 groups, grouped products.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ctest/support/seed.hpp"
#include "matrix.hpp"

#if STOWAGE_TEST_CUDA
#include "ctest/kernels/need_gpu.hpp"
#include "execution/cuda_backend.hpp"
#endif

namespace stowage::ctest {
namespace {

using Packings = std::vector<std::vector<Documents>>;

constexpr int kMostDocuments = 7;

#if STOWAGE_TEST_CUDA

std::unique_ptr<execution::Backend> make_backend() { return execution::make_cuda_backend(); }

// Chunks of the scan and tiles of attention are 128 tokens: borders in them and between them.
constexpr std::int32_t kTokens = 1024;
constexpr std::size_t kBudgetPercent = 70;  // scratch is the larger part of these layers' memory

/// Borders of chunks and tiles, and beside them.
const Documents kBorders = {0, 1, 2, 130, 256, 257, 900, 1022};

void set_sizes(forecast::TrainerOptions& options, int head_dim) { enlarge(options, head_dim); }

#else

constexpr std::size_t kBudgetPercent = 60;

std::unique_ptr<execution::Backend> make_backend() { return execution::make_host_backend(); }

constexpr std::int32_t kTokens = 23;

const Documents kBorders = {0, 1, 2, 5, 9, 10, 14, 21};

void set_sizes(forecast::TrainerOptions& options, int head_dim) {
  options.model.attention.head_dim = head_dim / 16;
}

#endif

/// One document, as long as there is room for.
const Documents kWhole = {0, kTokens};

/// Random lengths, with an empty document and one of a single token among them.
Documents draw_with_short(std::mt19937_64& random) {
  Documents documents = draw_documents(random, kTokens, kMostDocuments - 3);
  const auto start =
      static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(documents.back()));
  documents.insert(documents.end(), {start, start, start + 1});
  std::ranges::sort(documents);
  return documents;
}

/// Of three steps, each with other documents in each of three microbatches.
const Packings& packings() {
  static const Packings drawn = [] {
    std::mt19937_64 random(seed());
    const auto any = [&] { return draw_documents(random, kTokens, kMostDocuments); };
    const auto with_short = [&] { return draw_with_short(random); };
    return Packings{
        {any(), kWhole, with_short()}, {kWhole, any(), kBorders}, {with_short(), any(), kWhole}};
  }();
  return drawn;
}

/// @param capacities of the programs of all runs but the plain one
Matrix make_matrix(int head_dim, const Packings& packings, std::vector<std::int64_t> capacities) {
  return Matrix{{.backend = make_backend,
                 .adjust =
                     [=](forecast::TrainerOptions& options) {
                       set_sizes(options, head_dim);
                       options.capacities = capacities;
                     },
                 .packings = packings,
                 .lr = 1e-3,
                 .budget_percent = kBudgetPercent,
                 .digest = true}};
}

/// Cells that move or compute again much at once: all modules, a half of each, within a budget.
std::vector<Cell> broad_cells() {
  std::vector<Cell> cells = pairwise_cells();
  std::erase_if(cells, [](const Cell& cell) {
    return cell.offload != "all" && cell.offload != "half" && cell.offload != "auto" &&
           cell.offload != "reuse";
  });
  return cells;
}

class kernel_matrix : public testing::Test {
 protected:
#if STOWAGE_TEST_CUDA
  void SetUp() override { STOWAGE_NEED_GPU(); }
#endif
  static void check(int head_dim, const Packings& packings, const std::vector<Cell>& cells,
                    const std::vector<std::int64_t>& capacities = {kMostDocuments}) {
    ASSERT_FALSE(cells.empty());
    Matrix matrix = make_matrix(head_dim, packings, capacities);
    for (const Cell& cell : cells) matrix.check(cell);
  }
};

TEST_F(kernel_matrix, every_pair_of_choices_with_changing_documents) {
  check(128, packings(), pairwise_cells());
}

TEST_F(kernel_matrix, every_pair_of_choices_with_one_packing) {
  check(64, {packings().front()}, pairwise_cells());
}

TEST_F(kernel_matrix, broad_choices_with_several_capacities_and_small_heads) {
  check(64, packings(), broad_cells(), {3, kMostDocuments});
}

TEST_F(kernel_matrix, broad_choices_with_one_document) { check(128, {{kWhole}}, broad_cells()); }

TEST_F(kernel_matrix, knobs_of_timing_with_changing_documents_and_several_capacities) {
  check(128, packings(), knob_cells(), {1, 5, kMostDocuments});
}

// Equal bits of nothing would be no proof: other documents, or another rate, give other bits.
TEST_F(kernel_matrix, tells_other_steps_apart) {
  const auto after = [](const std::vector<Documents>& packing, double lr) {
    forecast::TrainerOptions options = tiny_options(every_kind() + "M", execution::Dtype::bf16);
    set_sizes(options, 64);
    options.capacities = {kMostDocuments};
    TinyRun run(std::move(options), make_backend());
    run.set_packing(packing);
    for (int i = 0; i < 2; ++i) run.train(i, lr);
    return run.digest();
  };
  const auto once = after(packings()[0], 1e-3);
  EXPECT_EQ(once, after(packings()[0], 1e-3));
  EXPECT_NE(once, after(packings()[2], 1e-3));
  EXPECT_NE(once, after(packings()[0], 1.001e-3));
}

}  // namespace
}  // namespace stowage::ctest
