#include "layers/step/step.hpp"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "layers/state/state.hpp"
#include "layers/step/parameter_factors.hpp"
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

TEST(step, losses_of_sources_are_parts_of_the_loss_and_change_no_bit) {
  forecast::TrainerOptions options = tiny_options("M-", Dtype::fp64);
  options.step.microbatches = 3;
  const auto expected = state_after(options, 1);
  options.step.sources = 3;
  TinyRun run(options);
  run.train(0, 1e-2);
  EXPECT_EQ(run.state(), expected);
  const std::vector<double> told = run.told();
  ASSERT_EQ(told.size(), 2U + 2 * 3);
  EXPECT_NEAR(told[2] + told[4] + told[6], told[0], 1e-12 * told[0]);
  EXPECT_EQ(told[3] + told[5] + told[7], told[1]);
  for (const std::size_t count : {3, 5, 7}) EXPECT_GT(told[count], 0);
}

// A bucket may span layers: those of AdamW's vectors do beside Muon.
TEST(step, parameters_are_gathered_in_the_order_in_which_forward_reads_them) {
  for (const layers::Optimizer* rule : {&layers::kAdamw, &layers::kMuon}) {
    SCOPED_TRACE(rule->name);
    forecast::TrainerOptions options = tiny_options("M-*EM-*E", Dtype::bf16);
    options.state.optimizer = rule;
    options.state.bucket_elements = 600;
    layers::Sharing sharing;
    sharing.ranks = parallel::planned_ranks(parallel::fit_grid(2), 0);
    sharing.zero = true;
    const layers::Model model(options.model, options.precision, 1, sharing.ranks);
    const execution::PersistentLayout layout = layers::lay_out_state(
        model.parameters(), model.states(), options.precision, options.state, sharing);
    const layers::TrainingProgram step =
        layers::record_training(model, options.step, *rule, options.optimizer, layout, sharing);
    const std::string gather = "all_gather/";
    std::vector<std::string> gathered;
    std::map<std::string, std::size_t> reads;  // the first op that does
    for (const execution::Op& op : step.program.ops()) {
      if (op.name.starts_with(gather)) {
        gathered.push_back(op.name.substr(gather.size()));
        continue;
      }
      for (const execution::Use& use : op.uses) {
        const std::string& name = step.program.info(use.tensor).name;
        if (layout.is_part(name)) reads.try_emplace(layout.bucket_of(name).name, reads.size());
      }
    }
    EXPECT_GT(gathered.size(), 6U);
    EXPECT_TRUE(std::ranges::is_sorted(gathered, {}, [&](const std::string& bucket) {
      return reads.at(bucket);
    })) << fmt::format("{}", fmt::join(gathered, ", "));
  }
}

// Every stage tells of all layers; those that others have, and depths, are zeros.
TEST(step, loads_of_routers_have_a_row_a_layer_and_a_depth_on_every_stage) {
  forecast::TrainerOptions options = tiny_options("EME-", Dtype::fp32);
  predict_further(options, false);
  options.model.moe.tells_load = true;
  for (const int stages : {1, 2})
    for (int rank = 0; rank < stages; ++rank) {
      layers::Sharing sharing;
      sharing.ranks = parallel::planned_ranks(parallel::fit_grid(stages, 1, 1, 1, stages), rank);
      const layers::Model model(options.model, options.precision, 1, sharing.ranks);
      const execution::PersistentLayout layout = layers::lay_out_state(
          model.parameters(), model.states(), options.precision, options.state, sharing);
      const layers::TrainingProgram step = layers::record_training(
          model, options.step, *options.state.optimizer, options.optimizer, layout, sharing);
      const execution::Tensor load = step.program.find(layers::kRouterLoad);
      ASSERT_TRUE(load);
      EXPECT_EQ(step.program.info(load).buffers[0].shape, (std::vector<std::int64_t>{2 + 2, 5}))
          << "stage " << rank << " of " << stages;
    }
}

// The cross-entropy stays what it is. A z-loss of so large a weight drives logsumexp to 0.
TEST(step, a_z_loss_is_told_beside_the_loss) {
  forecast::TrainerOptions options = tiny_options("-", Dtype::fp64);
  TinyRun plain(options);
  options.model.z_loss_coeff = 10;
  TinyRun run(options);
  plain.train(0, 1e-2);
  run.train(0, 1e-2);
  EXPECT_EQ(run.loss(), plain.loss());
  const std::vector<double> first = run.told();
  ASSERT_EQ(first.size(), 4U);
  EXPECT_EQ(first[3], first[1]);
  options.model.z_loss_coeff = 20;
  TinyRun twice(options);
  twice.train(0, 1e-2);
  EXPECT_NEAR(twice.told()[2], 2 * first[2], 1e-12 * first[2]);
  for (int i = 0; i < 30; ++i) run.train(0, 1e-2);
  EXPECT_LT(run.told()[2], 0.1 * first[2]);
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

// Frozen is what has a factor of 0; the norm, and so the clipping, is of all else.
TEST(step, factors_are_of_the_parameters_that_they_name) {
  forecast::TrainerOptions options = tiny_options("M-", Dtype::fp64);
  options.optimizer.clip = 0;
  const auto changes = [&](const forecast::TrainerOptions& given, double& norm) {
    TinyRun run(given);
    std::map<std::string, std::vector<double>> all;
    for (const layers::Parameter& p : run.trainer().plan().model().parameters())
      all[p.name] = run.read(p.name);
    run.train(0, 1e-3);
    norm = run.grad_norm();
    double squares = 0;
    for (auto& [name, values] : all) {
      const auto after = run.read(name), gradient = run.read(layers::gradient_name(name));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = after[i] - values[i];
      if (layers::factor_of(name, given.optimizer.lr_factors, 1) > 0)
        for (const double g : gradient) squares += g * g;
    }
    EXPECT_NEAR(norm, std::sqrt(squares), 1e-12 * norm);
    return all;
  };
  double norm = 0, norm_of_some = 0;
  const auto usual = changes(options, norm);
  options.optimizer.lr_factors = {"layers.* 0.5", "layers.0.* 0", "*.norm.weight 2"};
  auto given = changes(options, norm_of_some);
  EXPECT_LT(norm_of_some, norm);
  for (const auto& [name, values] : usual) {
    const bool is_norm = name.ends_with(".norm.weight");
    const double factor = is_norm                         ? 2
                          : name.starts_with("layers.0.") ? 0
                          : name.starts_with("layers.")   ? 0.5
                                                          : 1;
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(given[name][i], factor * values[i], 1e-13) << name << " " << i;
  }
}

TEST(step, decay_is_of_the_parameters_that_its_factors_name) {
  forecast::TrainerOptions options = tiny_options("-", Dtype::fp64);
  TinyRun usual(options);
  options.optimizer.decay_factors = {"*.norm.weight 0.5", "output.weight 0"};
  TinyRun run(options);
  const auto old_norm = run.read("layers.0.norm.weight"), old_head = run.read("output.weight");
  usual.train(0, 1e-3);
  run.train(0, 1e-3);
  const auto norm = run.read("layers.0.norm.weight"),
             usual_norm = usual.read("layers.0.norm.weight");
  const auto head = run.read("output.weight"), usual_head = usual.read("output.weight");
  const double decay = 1e-3 * options.optimizer.weight_decay;
  for (std::size_t i = 0; i < norm.size(); ++i)
    EXPECT_NEAR(norm[i], usual_norm[i] - 0.5 * decay * old_norm[i], 1e-15);
  for (std::size_t i = 0; i < head.size(); ++i)
    EXPECT_NEAR(head[i], usual_head[i] + decay * old_head[i], 1e-15);
}

TEST(step, a_factor_is_a_pattern_and_a_number) {
  for (const char* line : {"", "layers.*", "layers.* x", "layers.* -1", "layers.* 1 2", "1",
                           "layers.* inf", "layers.* nan", "layers.* 1e308"})
    EXPECT_FALSE(layers::read_parameter_factor(line)) << line;
  const auto given = layers::read_parameter_factor(" layers.[13].*\t1e-2 ");
  ASSERT_TRUE(given);
  EXPECT_EQ(given->factor, 1e-2);
  EXPECT_TRUE(given->matches("layers.3.norm.weight"));
  EXPECT_FALSE(given->matches("layers.13.norm.weight"));
}

}  // namespace
}  // namespace stowage::ctest
