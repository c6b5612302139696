// The peak that a plan states is the highest byte that a step changes, on the GPU; and what the GPU
// shows in use beside it.
#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ctest/kernels/need_gpu.hpp"
#include "execution/cuda_backend.hpp"
#include "kernels/linear/dense_product.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using execution::Region;
using Mode = offload::GraphOptions::Mode;
using Names = std::vector<std::string>;

constexpr std::size_t kSlack = std::size_t{64} << 20;
constexpr unsigned char kPattern = 0x5b;

class peak_gpu : public testing::Test {
 protected:
  void SetUp() override { STOWAGE_NEED_GPU(); }
};

forecast::TrainerOptions options_of(Mode mode, const Names& offload, const Names& recompute) {
  forecast::TrainerOptions options = tiny_options(every_kind() + "M", execution::Dtype::bf16);
  // Workspaces have room for either backend; with longer chunks the scan needs more on the GPU.
  options.model.mamba.chunk = 32;
  options.slack_bytes = kSlack;
  options.evaluation_microbatches = 0;
  options.planner.graphs.mode = mode;
  options.planner.graphs.scopes = {"layer"};
  offload::Policy& policy = options.planner.policy;
  policy.kind = offload::Policy::Kind::manual;
  for (const std::string& name : offload) policy.offload.push_back({name, {name}});
  for (const std::string& name : recompute) policy.recompute.push_back({name, {name}});
  policy.min_tensor_bytes = 0;
  policy.keep_exposed = false;
  return options;
}

std::size_t used_bytes() {
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return total - free;
}

/// Highest byte behind the arena's start that two steps change, of those beyond `from`.
std::size_t highest_changed(TinyRun& run, std::size_t from) {
  execution::Device& device = run.trainer().device();
  const std::span<std::byte> arena = device.device_arena();
  std::vector<unsigned char> seen(arena.size() - from);
  EXPECT_EQ(cudaMemset(arena.data() + from, kPattern, seen.size()), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int i = 0; i < 2; ++i) run.train(i, 1e-2);
  device.synchronize();
  EXPECT_EQ(cudaMemcpy(seen.data(), arena.data() + from, seen.size(), cudaMemcpyDefault),
            cudaSuccess);
  const auto last =
      std::find_if(seen.rbegin(), seen.rend(), [](unsigned char byte) { return byte != kPattern; });
  return from + static_cast<std::size_t>(seen.rend() - last);
}

/// The buffer that ends highest.
std::string last_buffer(const execution::Program& program, const execution::Plan& plan) {
  const execution::Place* last = nullptr;
  for (const execution::Place& place : plan.places)
    if (place.region == Region::transient && (last == nullptr || place.end() > last->end()))
      last = &place;
  return last == nullptr ? "" : program.info(last->tensor).name;
}

TEST_F(peak_gpu, is_the_highest_byte_changed) {
  const Names moved = {"mamba_conv", "mamba_ssm", "core_attn", "mlp_act", "moe_act", "expert_fc1"};
  const Names again = {"mlp_act", "moe_act", "mamba_ssm"};
  for (const Mode mode : {Mode::off, Mode::scopes, Mode::step})
    for (const Names& offload : {Names{}, moved})
      for (const Names& recompute : {Names{}, again}) {
        TinyRun run(options_of(mode, offload, recompute), execution::make_cuda_backend());
        execution::Device& device = run.trainer().device();
        const auto from =
            static_cast<std::size_t>(device.base(Region::transient) - device.device_arena().data());
        const auto& training = *run.trainer().plan().training().front();
        const execution::Plan& plan = training.plan;
        const std::size_t peak = from + plan.bytes[static_cast<int>(Region::transient)];
        const std::size_t highest = highest_changed(run, from);
        EXPECT_LE(highest, peak);
        EXPECT_GT(highest + execution::kAlignment, peak)
            << "mode " << static_cast<int>(mode) << ", " << offload.size() << " names leave, "
            << recompute.size() << " are computed again; "
            << last_buffer(training.recorded.program, plan) << " ends highest";
      }
}

TEST_F(peak_gpu, what_lies_beside_it_is_listed) {
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);  // the context
  const std::size_t before = used_bytes();
  const std::size_t products_before = kernels::product_workspaces_bytes();
  TinyRun run(options_of(Mode::scopes, {"mlp_act"}, {}), execution::make_cuda_backend());
  run.train(0, 1e-2);
  run.trainer().device().synchronize();
  const std::size_t arena = run.trainer().device().device_arena().size();
  const std::size_t products = kernels::product_workspaces_bytes() - products_before;
  fmt::print("in use: {} B before, arena {} B, cuBLASLt {} B, in all {} B after\n", before, arena,
             products, used_bytes());
  // However many queues launch graphs, compute is captured on one.
  EXPECT_LE(products, kernels::kProductWorkspaceBytes + kernels::kProductScratchBytes);
}

}  // namespace
}  // namespace stowage::ctest
