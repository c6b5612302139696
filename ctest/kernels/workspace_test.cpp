// Rooms of hybrid-moe-2b's operators on a GPU, in numbers: a plan that is made for one where there
// is none, or by a build without CUDA, is the plan that is run.

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

#include "kernels/attention/attention.hpp"
#include "kernels/conv1d/conv1d.hpp"
#include "kernels/conv_scan/conv_scan.hpp"
#include "kernels/grouped_mlp/grouped_mlp.hpp"
#include "kernels/machine.hpp"
#include "kernels/ssd/ssd.hpp"
#include "kernels/ssd/ssd_layout.hpp"

namespace stowage::kernels {
namespace {

using execution::Dtype;

constexpr std::int64_t kTokens = 16384;
constexpr SsdShape kScan{.heads = 64, .head_dim = 64, .groups = 8, .state = 128};

TEST(workspace, is_that_of_a_gpu_in_every_build) {
  if (machine().multiprocessors > 0 && !machine().wgmma()) GTEST_SKIP() << machine().no_wgmma();
  const Conv1dBackward conv{
      .tokens = kTokens, .channels = 6144, .width = 4, .storage = Dtype::bf16, .accumulate = false};
  EXPECT_EQ(conv.workspace_bytes(), 31457280);
  const auto forward = [](Dtype storage) {
    return SsdForward{.shape = kScan, .tokens = kTokens, .storage = storage}.workspace_bytes();
  };
  const auto backward = [](Dtype storage) {
    return SsdBackward{.shape = kScan, .tokens = kTokens, .storage = storage, .accumulate = false}
        .workspace_bytes();
  };
  EXPECT_EQ(forward(Dtype::bf16), 545259520);
  EXPECT_EQ(backward(Dtype::bf16), 1082327040);
  EXPECT_EQ(forward(Dtype::fp32), 1073872896);
  EXPECT_EQ(backward(Dtype::fp32), 2282225664);
  const ConvScanForward fused{
      .shape = kScan, .tokens = kTokens, .conv_width = 4, .storage = Dtype::bf16};
  const ConvScanBackward fused_backward{.shape = kScan,
                                        .tokens = kTokens,
                                        .conv_width = 4,
                                        .storage = Dtype::bf16,
                                        .accumulate = false};
  EXPECT_EQ(fused.workspace_bytes(), 746586112);
  EXPECT_EQ(fused_backward.workspace_bytes(), 1283653632);
  const GroupedFc2BackwardInput fc2{.kind = Activation::squared_relu,
                                    .rows = 4 * kTokens,
                                    .routed = 0,
                                    .experts = 32,
                                    .columns = 1024,
                                    .width = 2048,
                                    .storage = Dtype::bf16,
                                    .weighted = true};
  EXPECT_EQ(fc2.workspace_bytes(), 2097152);
  const AttentionShape attention{.heads = 16, .kv_heads = 4, .head_dim = 128, .scale = 1};
  EXPECT_EQ((AttentionForward{attention, kTokens, kTokens, 2, Dtype::bf16}.workspace_bytes()),
            1280);
  EXPECT_EQ((AttentionBackward{attention, kTokens, kTokens, 2, Dtype::bf16}.workspace_bytes()),
            139545088);
}

TEST(machine, says_what_a_gpu_lacks) {
  Machine other;
  EXPECT_EQ(other.no_wgmma(), "");
  for (const auto& [capability, text] : {std::pair{86, "8.6"}, {100, "10.0"}}) {
    other.capability = capability;
    EXPECT_FALSE(other.wgmma());
    EXPECT_EQ(other.no_wgmma(), std::string("needs compute capability 9.0: this GPU has ") + text);
  }
}

/// Heads of 80 columns: units of 64 columns cut them, where a group's columns are whole units.
TEST(workspace, of_heads_that_units_cut) {
  if (machine().multiprocessors > 0 && !machine().wgmma()) GTEST_SKIP() << machine().no_wgmma();
  const SsdShape nano{.heads = 128, .head_dim = 80, .groups = 8, .state = 128};
  const SsdShape wide{.heads = 160, .head_dim = 64, .groups = 8, .state = 128};  // as many columns
  EXPECT_TRUE(nano.on_tensor_cores(Dtype::bf16));
  EXPECT_FALSE(nano.on_tensor_cores(Dtype::fp32));
  const auto room = [](const SsdShape& shape) {
    return SsdBackward{.shape = shape, .tokens = 8192, .storage = Dtype::bf16, .accumulate = false}
        .workspace_bytes();
  };
  EXPECT_NEAR(static_cast<double>(room(nano)), static_cast<double>(room(wide)),
              0.1 * static_cast<double>(room(wide)));
  const ssd::Sizes sizes = ssd::sizes_of(detail::cuda_shape(nano, 8192), true);
  EXPECT_EQ(sizes.units, 160);
  EXPECT_EQ(sizes.group_units, 20);
  EXPECT_EQ(sizes.b_column, 10240);
  EXPECT_EQ(sizes.segments, 4);  // of 160 blocks each: five waves of 132 for four, two for one
  SsdCudaShape whole = detail::cuda_shape(nano, 8192);
  whole.segments = 1;
  EXPECT_EQ(ssd::sizes_of(whole, true).pieces, 4);
  for (const auto& [heads, columns, groups, state, served] : {std::array{128, 80, 8, 128, 1},
                                                              {4, 80, 1, 128, 1},
                                                              {6, 80, 2, 128, 0},
                                                              {4, 80, 1, 64, 0},
                                                              {4, 48, 1, 128, 0},
                                                              {4, 96, 2, 128, 0},
                                                              {4, 0, 2, 128, 0},
                                                              {4, 192, 2, 64, 1}})
    EXPECT_EQ(ssd::is_served(heads, columns, groups, state), served == 1) << columns;
}

}  // namespace
}  // namespace stowage::kernels
