#include "layers/step/step.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;

std::vector<std::byte> state_after(forecast::TrainerOptions options, int steps,
                                   execution::HostOptions host = {}) {
  TinyRun run(std::move(options), host);
  for (int i = 0; i < steps; ++i) run.train(i, 1e-2);
  return run.state();
}

TEST(step, repeats_to_the_bit) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    const forecast::TrainerOptions options = tiny_options(every_kind(), dtype);
    EXPECT_EQ(state_after(options, 3), state_after(options, 3));
  }
}

TEST(step, random_delays_change_no_bit) {
  forecast::TrainerOptions options = tiny_options(every_kind(), Dtype::bf16);
  options.step.microbatches = 3;
  const auto expected = state_after(options, 2);
  EXPECT_EQ(state_after(options, 2, {.delay_seed = 11, .max_delay_s = 50e-6}), expected);
}

TEST(step, audit_finds_nothing_undeclared) {
  forecast::TrainerOptions options = tiny_options(every_kind(), Dtype::fp32);
  options.step.microbatches = 2;
  const auto expected = state_after(options, 2);
  options.executor.audit = true;
  options.planner.alignment = 4096;
  EXPECT_EQ(state_after(options, 2), expected);
}

TEST(step, loss_falls) {
  TinyRun run(tiny_options(every_kind(), Dtype::fp32));
  const double before = run.evaluate(5);
  for (int i = 0; i < 30; ++i) run.train(5, 1e-2);
  EXPECT_TRUE(run.step_ok());
  EXPECT_LT(run.evaluate(5), 0.7 * before);
}

TEST(step, the_loss_of_all_microbatches_is_the_evaluations) {
  forecast::TrainerOptions options = tiny_options("M-", Dtype::fp64);
  options.step.microbatches = 5;
  options.evaluation_microbatches = 5;
  TinyRun run(options);
  run.train(1, 0.0);
  EXPECT_NEAR(run.loss()[0], run.evaluate(1), 1e-12 * run.loss()[0]);
  EXPECT_EQ(run.loss()[1], 5 * 18);
}

TEST(step, a_bad_step_changes_nothing) {
  TinyRun run(tiny_options(every_kind(), Dtype::fp32));
  run.train(0, 1e-2);
  std::vector<double> weights = run.read("final_norm.weight");
  const double kept = weights[3];
  weights[3] = std::numeric_limits<double>::quiet_NaN();
  run.write("final_norm.weight", weights);
  const auto expected = run.read("layers.0.mamba.in_proj.weight");
  const auto moment = run.read("adam_m/layers.0.mamba.in_proj.weight");
  const auto bias = run.read("layers.3.router.bias");
  run.train(1, 1e-2);
  EXPECT_FALSE(run.step_ok());
  EXPECT_EQ(run.read("layers.0.mamba.in_proj.weight"), expected);
  EXPECT_EQ(run.read("adam_m/layers.0.mamba.in_proj.weight"), moment);
  EXPECT_EQ(run.read("layers.3.router.bias"), bias);
  weights[3] = kept;
  run.write("final_norm.weight", weights);
  run.train(1, 1e-2);
  EXPECT_TRUE(run.step_ok());
  EXPECT_NE(run.read("layers.0.mamba.in_proj.weight"), expected);
}

TEST(step, peak_is_the_highest_byte_changed) {
  constexpr std::size_t kSlack = std::size_t{64} << 20;
  forecast::TrainerOptions options = tiny_options(every_kind(), Dtype::fp32);
  options.slack_bytes = kSlack;
  TinyRun run(options);
  execution::Device& device = run.trainer().device();
  const std::span<std::byte> arena = device.device_arena();
  const auto transient =
      static_cast<std::size_t>(device.base(execution::Region::transient) - arena.data());
  std::fill(arena.begin() + static_cast<std::ptrdiff_t>(transient), arena.end(), std::byte{0x5b});
  run.train(0, 1e-2);
  device.synchronize();
  std::size_t highest = arena.size();
  while (arena[highest - 1] == std::byte{0x5b}) --highest;
  const execution::Plan& plan = run.trainer().plan().training().front()->plan;
  const std::size_t peak = transient + plan.bytes[1];
  EXPECT_LE(highest, peak);
  EXPECT_GT(highest + execution::kAlignment, peak);
  EXPECT_EQ(plan.bytes[1], plan.live_bytes);
}

TEST(step, the_norm_is_that_of_all_gradients) {
  forecast::TrainerOptions options = tiny_options("-", Dtype::fp64);
  TinyRun run(options);
  run.train(0, 0.0);
  double squares = 0;
  for (const layers::Parameter& p : run.trainer().plan().model().parameters())
    for (const double g : run.read(layers::gradient_name(p.name))) squares += g * g;
  EXPECT_NEAR(run.grad_norm(), std::sqrt(squares), 1e-12 * run.grad_norm());
}

}  // namespace
}  // namespace stowage::ctest
