// Whole training steps on the GPU against the host backend: the same program and the same data.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ctest/kernels/need_gpu.hpp"
#include "execution/cuda_backend.hpp"
#include "execution/error.hpp"
#include "execution/loaded_library.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;

class trainer_gpu : public testing::Test {
 protected:
  void SetUp() override { STOWAGE_NEED_GPU(); }
};

/// The sizes of the standard decks' heads, states and groups, for the kernels made for them.
forecast::TrainerOptions standard_options(const std::string& pattern, Dtype storage) {
  forecast::TrainerOptions options = tiny_options(pattern, storage);
  layers::ModelConfig& model = options.model;
  model.width = 256;
  model.init_std = 0.05;
  model.attention = {4, 2, 128, true, {10000.0}};
  model.mamba = {.heads = 8, .head_dim = 64, .groups = 2, .state = 128, .chunk = 128};
  model.delta = {.key_heads = 2, .value_heads = 4};
  model.mlp.ffn = 512;
  model.moe = {.experts = 8, .topk = 2, .ffn = 256, .shared_ffn = 256, .scaling = 1.5};
  options.state.bucket_elements = 200000;
  return options;
}

TinyRun on_gpu(forecast::TrainerOptions options) {
  return TinyRun(std::move(options), execution::make_cuda_backend());
}

double relative_error(const std::vector<double>& value, const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(value[i] - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

/// One step on both backends: the loss, and the gradient of every parameter by norm.
void compare(forecast::TrainerOptions options, double loss_tolerance, double tolerance) {
  const bool frozen = options.precision.storage == Dtype::bf16;
  if (frozen) options.model.moe.frozen_tokens = options.step.tokens;
  TinyRun host(options);
  TinyRun gpu = on_gpu(options);
  for (TinyRun* run : {&host, &gpu}) {
    if (frozen) run->freeze_routing();  // a tie would send a token elsewhere
    run->train(1, 1e-2);
    EXPECT_TRUE(run->step_ok());
  }
  EXPECT_EQ(gpu.loss()[1], host.loss()[1]);
  EXPECT_NEAR(gpu.loss()[0], host.loss()[0], loss_tolerance * host.loss()[0]);
  EXPECT_NEAR(gpu.grad_norm(), host.grad_norm(), tolerance * host.grad_norm());
  for (const layers::Parameter& p : host.trainer().plan().model().parameters()) {
    const std::string name = layers::gradient_name(p.name);
    EXPECT_LT(relative_error(gpu.read(name), host.read(name)), tolerance) << name;
  }
}

// fp32: sums of some hundred terms in another order, through some ten operators: 300 eps. Each
// operator has its own, tighter test; this one is about the program.
constexpr double kFp32 = 300 * 0x1p-23;
// bf16: each of some ten operators rounds its result to 2^-9, on both sides.
constexpr double kBf16 = 20 * 0x1p-9;

TEST_F(trainer_gpu, starts_from_the_same_bits) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    const forecast::TrainerOptions options = tiny_options(every_kind(), dtype);
    TinyRun host(options);
    TinyRun gpu = on_gpu(options);
    EXPECT_EQ(gpu.state(), host.state());
  }
}

TEST_F(trainer_gpu, every_letter_in_fp32) {
  for (const char letter : every_kind()) {
    SCOPED_TRACE(letter);
    compare(tiny_options(std::string(1, letter), Dtype::fp32), kFp32, kFp32);
  }
}

TEST_F(trainer_gpu, all_letters_in_fp32) {
  compare(tiny_options(every_kind(), Dtype::fp32), kFp32, kFp32);
}

TEST_F(trainer_gpu, microbatches_in_fp32) {
  forecast::TrainerOptions options = tiny_options(every_kind(), Dtype::fp32);
  options.step.microbatches = 3;
  compare(options, kFp32, kFp32);
}

TEST_F(trainer_gpu, variants_in_fp32) {
  forecast::TrainerOptions options = tiny_options("*-E", Dtype::fp32);
  options.model.mlp.activation = kernels::Activation::swiglu;
  options.model.tied_embeddings = true;
  options.model.moe.sigmoid = false;
  options.model.moe.shared_ffn = 0;
  options.model.attention.rope = false;
  compare(options, kFp32, kFp32);
}

TEST_F(trainer_gpu, every_letter_in_bf16) {
  for (const char letter : every_kind()) {
    SCOPED_TRACE(letter);
    compare(tiny_options(std::string(1, letter), Dtype::bf16), kBf16, kBf16);
  }
}

TEST_F(trainer_gpu, standard_sizes) {
  compare(standard_options(every_kind(), Dtype::fp32), kFp32, kFp32);
  compare(standard_options(without_gated_delta(every_kind()), Dtype::bf16), kBf16, kBf16);
  forecast::TrainerOptions all = standard_options(every_kind(), Dtype::bf16);
  condition_norms(all);
  compare(all, kBf16, kBf16);
}

/// Convolution and scan as one operator, forward or both ways, by the kernels made for it.
TEST_F(trainer_gpu, fused_mixers) {
  using Form = layers::ModelConfig::Mamba::Form;
  for (const Form form : {Form::fused_forward, Form::fused}) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
      forecast::TrainerOptions options = standard_options("M", dtype);
      options.model.mamba.form = form;
      compare(options, dtype == Dtype::fp32 ? kFp32 : kBf16, dtype == Dtype::fp32 ? kFp32 : kBf16);
    }
  }
}

std::vector<std::byte> state_after(const forecast::TrainerOptions& options, int steps) {
  TinyRun run = on_gpu(options);
  for (int i = 0; i < steps; ++i) run.train(i, 1e-2);
  return run.state();
}

TEST_F(trainer_gpu, repeats_to_the_bit) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16})
    for (const auto& options :
         {tiny_options(every_kind(), dtype), standard_options(every_kind(), dtype)})
      EXPECT_EQ(state_after(options, 3), state_after(options, 3));
  forecast::TrainerOptions fused = standard_options("M", Dtype::bf16);
  fused.model.mamba.form = layers::ModelConfig::Mamba::Form::fused;
  EXPECT_EQ(state_after(fused, 3), state_after(fused, 3));
}

/// Whether NVML, loaded at run time, shows other processes on the GPU.
bool others_on_gpu() {
  using Handle = void*;
  char bus[32] = {};
  const auto nvml = execution::LoadedLibrary::if_found("libnvidia-ml.so.1");
  if (cudaDeviceGetPCIBusId(bus, sizeof bus, 0) != cudaSuccess) return false;
  auto* start = nvml.function<int()>("nvmlInit_v2");
  auto* open = nvml.function<int(const char*, Handle*)>("nvmlDeviceGetHandleByPciBusId_v2");
  auto* list =
      nvml.function<int(Handle, unsigned*, void*)>("nvmlDeviceGetComputeRunningProcesses_v3");
  struct {
    unsigned pid;
    unsigned long long bytes;
    unsigned instances[2];
  } processes[64];
  unsigned count = 64;
  Handle gpu = nullptr;
  return start != nullptr && open != nullptr && list != nullptr && start() == 0 &&
         open(bus, &gpu) == 0 && list(gpu, &count, processes) == 0 && count > 1;
}

/// How much of the device's free memory went away in steps 1 to 4 of a trainer of its own.
std::int64_t bytes_taken_by_steps() {
  TinyRun run = on_gpu(tiny_options(every_kind(), Dtype::bf16));
  const std::uint64_t before = run.backend().allocations();
  const auto free_bytes = [&run] {
    std::size_t free = 0, total = 0;
    run.trainer().device().synchronize();
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return static_cast<std::int64_t>(free);
  };
  run.train(0, 1e-2);
  const std::int64_t free_before = free_bytes();
  for (int i = 1; i < 5; ++i) run.train(i, 1e-2);
  const std::int64_t taken = free_before - free_bytes();
  EXPECT_EQ(run.backend().allocations(), before);
  return taken;
}

// The backend's counter knows our arenas; free memory also what a library or the driver takes, but
// it moves with other processes too.
TEST_F(trainer_gpu, allocates_nothing_after_set_up) {
  const std::int64_t taken = bytes_taken_by_steps();
  if (others_on_gpu())
    GTEST_SKIP() << "others use this GPU: its free memory says nothing, our counter did not move";
  EXPECT_EQ(taken, 0);
}

TEST_F(trainer_gpu, a_bad_step_changes_nothing) {
  TinyRun run = on_gpu(tiny_options(every_kind(), Dtype::fp32));
  run.train(0, 1e-2);
  std::vector<double> weights = run.read("final_norm.weight");
  weights[3] = std::numeric_limits<double>::quiet_NaN();
  run.write("final_norm.weight", weights);
  const char* const kept[] = {"layers.0.mamba.in_proj.weight",
                              "adam_m/layers.0.mamba.in_proj.weight", "layers.3.router.bias"};
  std::vector<std::vector<double>> before;
  for (const char* name : kept) before.push_back(run.read(name));
  run.train(1, 1e-2);
  EXPECT_FALSE(run.step_ok());
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(run.read(kept[i]), before[i]) << kept[i];
}

TEST_F(trainer_gpu, too_large_a_plan_is_refused) {
  forecast::TrainerOptions options = tiny_options("-", Dtype::fp32);
  options.slack_bytes = std::size_t{1} << 50;
  try {
    (void)on_gpu(options);
    FAIL() << "an arena of a pebibyte";
  } catch (const execution::Error& error) {
    EXPECT_EQ(error.exit(), execution::Exit::environment);
  }
}

}  // namespace
}  // namespace stowage::ctest
