#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "ctest/kernels/hopper_mbarrier.hpp"
#include "ctest/kernels/hopper_order.hpp"
#include "ctest/kernels/hopper_product.hpp"
#include "ctest/kernels/need_gpu.hpp"
#include "ctest/support/seed.hpp"

// One wgmma tile, fed by bulk tensor copies: descriptors, swizzle, fragments and tensor maps in one
// go; and what the tests of a barrier's phase say.
namespace stowage::kernels::test {
namespace {

using execution::Bf16;

constexpr int kM = 64;
constexpr int kN = 128;
constexpr int kK = 64;

void check(ProductForm form) {
  STOWAGE_NEED_WGMMA();
  std::mt19937_64 generator(ctest::seed());
  std::normal_distribution<float> normal;
  std::vector<Bf16> values(kM * kK + kN * kK);
  for (Bf16& value : values) value = Bf16(normal(generator));
  const std::size_t value_bytes = values.size() * sizeof(Bf16);
  std::vector<float> d(kM * kN);
  void* device = nullptr;
  void* out = nullptr;
  ASSERT_EQ(cudaMalloc(&device, value_bytes), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&out, d.size() * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMemset(out, 0xFF, d.size() * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(device, values.data(), value_bytes, cudaMemcpyHostToDevice), cudaSuccess);
  const auto* a = static_cast<const Bf16*>(device);
  ASSERT_EQ(run_product(form, a, a + kM * kK, static_cast<float*>(out)), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(d.data(), out, d.size() * sizeof(float), cudaMemcpyDeviceToHost),
            cudaSuccess);
  cudaFree(device);
  cudaFree(out);
  for (int m = 0; m < kM; ++m) {
    for (int n = 0; n < kN; ++n) {
      double expected = 0;
      double magnitude = 0;
      for (int k = 0; k < kK; ++k) {
        const int b = kM * kK + (along_n(form) ? k * kN + n : n * kK + k);
        const double term =
            static_cast<double>(values[m * kK + k]) * static_cast<double>(values[b]);
        expected += term;
        magnitude += std::abs(term);
      }
      // Products of bf16 are exact in fp32; the tensor core truncates sums, so one ulp for each
      // term.
      ASSERT_NEAR(d[m * kN + n], expected, kK * 0x1p-23 * magnitude)
          << "row " << m << ", column " << n;
    }
  }
}

TEST(hopper_gpu, product_of_k_major_operands) { check(ProductForm::k_major); }
TEST(hopper_gpu, product_with_b_along_n) { check(ProductForm::mn_major_b); }
TEST(hopper_gpu, product_with_a_in_registers) { check(ProductForm::a_in_registers); }
TEST(hopper_gpu, products_of_warps) { check(ProductForm::of_warps); }

// The test for a parity says true when the phase of that parity is the one that ended last: on a
// fresh barrier parity 1, whose phase is taken to have ended before the first.
TEST(hopper_gpu, mbarrier_tests_say_which_phase_has_ended) {
  STOWAGE_NEED_WGMMA();
  PhaseSeen seen[kPhasePoints];
  ASSERT_EQ(run_phases(seen), cudaSuccess);
  const int ended[kPhasePoints] = {1, 1, 0, 0, 1};
  for (std::size_t point = 0; point < kPhasePoints; ++point) {
    for (int parity = 0; parity < 2; ++parity) {
      EXPECT_EQ(seen[point].test[parity], parity == ended[point])
          << "test_wait, point " << point << ", parity " << parity;
      EXPECT_EQ(seen[point].tried[parity], parity == ended[point])
          << "try_wait, point " << point << ", parity " << parity;
    }
  }
}

// A block sees what those before it have written, also what the copy engine has added for them.
TEST(hopper_gpu, blocks_take_turns) {
  STOWAGE_NEED_WGMMA();
  std::uint32_t chained[kChainWords];
  float sums[kChainWords];
  ASSERT_EQ(run_chain(chained, sums), cudaSuccess);
  for (int i = 0; i < kChainWords; ++i) {
    std::uint32_t expected = 0;
    for (int ticket = 0; ticket < kChainBlocks; ++ticket)
      expected = 3 * expected + static_cast<std::uint32_t>(ticket + i);
    EXPECT_EQ(chained[i], expected) << "word " << i;
    EXPECT_EQ(sums[i], static_cast<float>(kChainBlocks * (kChainBlocks - 1) / 2)) << "word " << i;
  }
}

}  // namespace
}  // namespace stowage::kernels::test
