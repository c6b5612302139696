// Eager, graphed, offloaded and recomputed runs give the same bits: every combination of choices on
// the host, every pair on a GPU (STOWAGE_TEST_CUDA).
#include "matrix.hpp"

#include <gtest/gtest.h>

#if STOWAGE_TEST_CUDA
#include "ctest/kernels/need_gpu.hpp"
#include "execution/cuda_backend.hpp"
#endif

namespace stowage::ctest {
namespace {

class matrix : public testing::Test {
 protected:
#if STOWAGE_TEST_CUDA
  void SetUp() override { STOWAGE_NEED_GPU(); }
  static std::unique_ptr<execution::Backend> backend() { return execution::make_cuda_backend(); }
#else
  static std::unique_ptr<execution::Backend> backend() { return execution::make_host_backend(); }
#endif
  Matrix cells{{.backend = backend}};
};

TEST_F(matrix, every_choice_gives_the_bits_of_the_plain_run) {
  const std::vector<Cell> all = STOWAGE_TEST_CUDA ? pairwise_cells() : all_cells();
  for (const Cell& cell : all) cells.check(cell);
}

TEST_F(matrix, gated_forms_give_the_bits_of_the_plain_run) {
  Matrix gated{{.backend = backend, .adjust = use_gates}};
  for (const Cell& cell : dealt_cells(0, 4, pairwise_cells())) gated.check(cell);
}

TEST_F(matrix, latent_experts_and_further_tokens_give_the_bits_of_the_plain_run) {
  for (const bool shared : {false, true}) {
    Matrix further{{.backend = backend, .adjust = [shared](forecast::TrainerOptions& options) {
                      predict_further(options, shared);
                    }}};
    for (const Cell& cell : dealt_cells(shared ? 1 : 2, 8, pairwise_cells())) further.check(cell);
  }
}

TEST_F(matrix, muon_gives_the_bits_of_the_plain_run) {
  Matrix muon{{.backend = backend, .optimizer = &layers::kMuon}};
  for (const Cell& cell : dealt_cells(1, 4, pairwise_cells())) muon.check(cell);
}

// Gradients of microbatches are added up in bf16, too.
TEST_F(matrix, states_of_three_bytes_give_the_bits_of_the_plain_run) {
  Matrix rounded{{.backend = backend,
                  .adjust =
                      [](forecast::TrainerOptions& options) {
                        options.state.type = {&layers::kStatesOf3Bytes, execution::Dtype::bf16};
                      },
                  .budget_percent = 70}};  // less is not enough on a GPU
  for (const Cell& cell : dealt_cells(3, 8, pairwise_cells())) rounded.check(cell);
}

TEST_F(matrix, knobs_of_timing_give_the_bits_of_the_plain_run) {
  for (const Cell& cell : knob_cells()) cells.check(cell);
}

}  // namespace
}  // namespace stowage::ctest
