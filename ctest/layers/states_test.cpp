// Optimizer states with their home on the host: the bits of a run that has them on the device, in
// every way to run a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "execution/error.hpp"
#include "execution/plan_shape.hpp"
#include "forecast/plan/choose_states.hpp"
#include "tiny_model.hpp"
#include "toy_optimizer.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;
using execution::Region;
using Names = std::vector<std::string>;
using Mode = offload::GraphOptions::Mode;

/// With tensors that are cut into several windows.
forecast::TrainerOptions options_of(Dtype storage = Dtype::bf16, int microbatches = 1) {
  forecast::TrainerOptions options = tiny_options(every_kind(), storage);
  options.model.vocabulary = 701;
  options.step.microbatches = microbatches;
  options.evaluation_microbatches = 0;
  if (microbatches > 1) options.state.type = {&layers::kStatesOfBf16};
  options.optimizer.window_elements = 2 * execution::kBucketGrain;
  return options;
}

const Names kAll = {"master", "adam_m", "adam_v"};

/// Losses and all that outlives a step, after some steps.
std::vector<std::byte> outcome(TinyRun& run) {
  std::vector<double> losses;
  for (int i = 0; i < 3; ++i) {
    run.train(i, 1e-2);
    losses.push_back(run.loss()[0]);
    losses.push_back(run.grad_norm());
  }
  std::vector<std::byte> state = run.state();
  const auto bytes = std::as_bytes(std::span(losses));
  state.insert(state.end(), bytes.begin(), bytes.end());
  return state;
}

std::vector<std::byte> outcome(forecast::TrainerOptions options,
                               const execution::HostOptions& host = {}) {
  TinyRun run(std::move(options), host);
  return outcome(run);
}

std::size_t windows(const execution::Program& program, const execution::Plan& plan) {
  return static_cast<std::size_t>(
      std::ranges::count_if(plan.places, [&](const execution::Place& place) {
        return place.region == Region::transient &&
               is_persistent(program.info(place.tensor).lifetime);
      }));
}

TEST(states, what_is_named_has_its_home_on_the_host) {
  forecast::TrainerOptions options = options_of();
  const forecast::TrainerPlan on_device(options);
  EXPECT_EQ(on_device.layout().host_bytes(), 0U);
  for (const Names& names : {Names{"master"}, Names{"adam_m", "adam_v"}, kAll, Names{"gradient"},
                             Names{"parameter", "adam_m"}}) {
    options.state.host.names = names;
    const auto named = [&](std::string_view what) {
      return std::ranges::find(names, what) != names.end();
    };
    const forecast::TrainerPlan plan(options);
    const execution::PersistentLayout& layout = plan.layout();
    for (const layers::Parameter& p : plan.model().parameters()) {
      EXPECT_EQ(layout.on_host(p.name), named(layers::kParameter));
      EXPECT_EQ(layout.on_host(layers::gradient_name(p.name)), named(layers::kGradient));
      for (const std::string& state : kAll)
        EXPECT_EQ(layout.on_host(layers::state_name(state, p.name)), named(state));
    }
    EXPECT_EQ(layout.bytes() + layout.host_bytes(), on_device.layout().bytes());
    EXPECT_GE(plan.host_bytes(), layout.host_bytes());
    const auto& training = *plan.training().front();
    EXPECT_GT(windows(training.recorded.program, training.plan), names.size());
    plan.require_proven();
  }
}

TEST(states, a_fraction_is_never_passed) {
  forecast::TrainerOptions options = options_of();
  options.state.host.names = kAll;
  const std::size_t all = forecast::TrainerPlan(options).layout().host_bytes();
  std::size_t before = 0;
  for (const double fraction : {0.0, 0.3, 0.6, 1.0}) {
    options.state.host.fraction = fraction;
    const std::size_t bytes = forecast::TrainerPlan(options).layout().host_bytes();
    EXPECT_GE(bytes, before);
    before = bytes;
  }
  EXPECT_EQ(before, all);
  options.state.host.fraction = 0;
  EXPECT_EQ(forecast::TrainerPlan(options).layout().host_bytes(), 0U);
}

TEST(states, no_home_changes_a_bit) {
  for (const Dtype storage : {Dtype::bf16, Dtype::fp32})
    for (const int microbatches : {1, 3}) {
      const std::vector<std::byte> expected = outcome(options_of(storage, microbatches));
      for (const Names& names :
           {Names{"master"}, Names{"adam_v"}, kAll, Names{"gradient"}, Names{"parameter"},
            Names{"gradient", "parameter", "master", "adam_m", "adam_v"}})
        for (const auto& [fraction, mode] :
             {std::pair(0.5, Mode::off), std::pair(1.0, Mode::step)}) {
          forecast::TrainerOptions options = options_of(storage, microbatches);
          options.state.host = {.names = names, .fraction = fraction};
          options.planner.graphs.mode = mode;
          EXPECT_TRUE(outcome(options) == expected)
              << names.front() << " " << fraction << " of " << microbatches;
        }
    }
}

/// Copies to the device of a step.
int loads(const forecast::TrainerOptions& options) {
  const forecast::TrainerPlan plan(options);
  plan.require_proven();
  const std::vector<execution::Step>& steps = plan.training().front()->plan.steps;
  return static_cast<int>(std::ranges::count_if(steps, [](const execution::Step& step) {
    return step.what == execution::Step::What::copy_in;
  }));
}

TEST(states, windows_stay_where_memory_is_free) {
  const std::vector<std::byte> expected = outcome(options_of(Dtype::bf16, 3));
  for (const Names& names : {Names{"gradient"}, Names{"parameter"}}) {
    forecast::TrainerOptions options = options_of(Dtype::bf16, 3);
    options.state.host.names = names;
    const int tight = loads(options);
    options.planner.policy.kind = offload::Policy::Kind::automatic;
    options.planner.policy.device_budget_bytes = std::int64_t{1} << 30;
    EXPECT_LT(2 * loads(options), tight) << names.front();
    EXPECT_TRUE(outcome(options) == expected) << names.front();
  }
}

/// The same with states of three bytes, which have no masters.
forecast::TrainerOptions three_bytes(Dtype storage = Dtype::bf16) {
  forecast::TrainerOptions options = options_of(storage);
  options.state.type = {&layers::kStatesOf3Bytes};
  return options;
}

TEST(states, no_home_changes_a_bit_of_three_bytes) {
  for (const Dtype storage : {Dtype::bf16, Dtype::fp32}) {
    const std::vector<std::byte> expected = outcome(three_bytes(storage));
    for (const Names& names : {Names{"adam_m"}, Names{"adam_m", "adam_v"}})
      for (const Mode mode : {Mode::off, Mode::step}) {
        forecast::TrainerOptions options = three_bytes(storage);
        options.state.host.names = names;
        options.planner.graphs.mode = mode;
        EXPECT_TRUE(outcome(options) == expected) << names.size();
      }
    forecast::TrainerOptions options = three_bytes(storage);
    options.optimizer.seed = 1;
    EXPECT_FALSE(outcome(options) == expected) << "the seed is not used";
  }
}

TEST(states, three_bytes_are_three_bytes) {
  const auto bytes = [](const forecast::TrainerPlan& plan) {
    std::size_t sum = 0;
    for (const execution::Bucket& bucket : plan.layout().buckets())
      if (!bucket.group.empty() && plan.layout().whole(bucket.tensors.front()).lifetime ==
                                       execution::Lifetime::optimizer_state)
        sum += bucket.bytes();
    return sum;
  };
  const forecast::TrainerPlan plan(three_bytes()), wide(options_of());
  const execution::PersistentLayout& layout = plan.layout();
  for (const layers::Parameter& p : plan.model().parameters()) {
    EXPECT_FALSE(layout.is_part(layers::master_name(p.name)));
    EXPECT_EQ(layout.whole(layers::state_name("adam_m", p.name)).buffers[0].dtype, Dtype::e4m3);
    EXPECT_EQ(layout.whole(layers::state_name("adam_v", p.name)).buffers[0].dtype, Dtype::bf16);
  }
  EXPECT_EQ(4 * bytes(plan), bytes(wide));
}

/// Gradients of microbatches are added up in bf16.
forecast::TrainerOptions rounded_sums(int microbatches) {
  forecast::TrainerOptions options = three_bytes();
  options.state.type.gradients = Dtype::bf16;
  options.step.microbatches = microbatches;
  return options;
}

TEST(states, gradients_in_bf16_are_those_in_fp32_rounded) {
  for (const int microbatches : {1, 2, 5}) {
    forecast::TrainerOptions wide = rounded_sums(microbatches);
    wide.state.type.gradients = Dtype::fp32;
    TinyRun plain(wide), rounded(rounded_sums(microbatches));
    plain.train(0, 1e-2);
    rounded.train(0, 1e-2);
    EXPECT_EQ(rounded.loss(), plain.loss());
    EXPECT_NEAR(rounded.grad_norm(), plain.grad_norm(), 1e-2 * plain.grad_norm());
    const execution::PersistentLayout& layout = rounded.trainer().plan().layout();
    EXPECT_LE(2 * layout.bytes(execution::Lifetime::gradient),
              plain.trainer().plan().layout().bytes(execution::Lifetime::gradient) + 4096);
    for (const layers::Parameter& p : rounded.trainer().plan().model().parameters()) {
      const std::string name = layers::gradient_name(p.name);
      EXPECT_EQ(layout.whole(name).buffers[0].dtype, Dtype::bf16);
      const std::vector<double> sum = rounded.read(name), expected = plain.read(name);
      double difference = 0, size = 0;
      for (std::size_t i = 0; i < sum.size(); ++i) {
        difference += (sum[i] - expected[i]) * (sum[i] - expected[i]);
        size += expected[i] * expected[i];
      }
      // A rounding is off by a step at most; summands may cancel, but not in all of a tensor.
      EXPECT_LE(std::sqrt(difference),
                4 * microbatches * execution::epsilon(Dtype::bf16) * std::sqrt(size))
          << name;
    }
  }
}

TEST(states, no_way_to_run_changes_a_bit_of_gradients_in_bf16) {
  for (const int microbatches : {1, 5}) {
    const std::vector<std::byte> expected = outcome(rounded_sums(microbatches));
    for (const Mode mode : {Mode::off, Mode::step}) {
      forecast::TrainerOptions options = rounded_sums(microbatches);
      options.state.host.names = {"adam_m", "adam_v"};
      options.planner.graphs.mode = mode;
      EXPECT_TRUE(outcome(options) == expected);
    }
    forecast::TrainerOptions options = rounded_sums(microbatches);
    options.planner.alignment = 4096;
    options.executor.audit = true;
    EXPECT_TRUE(outcome(options) == expected);
    options = rounded_sums(microbatches);
    options.planner.policy.kind = offload::Policy::Kind::automatic;
    options.planner.policy.device_budget_bytes =
        static_cast<std::int64_t>(forecast::TrainerPlan(options).layout().bytes()) * 5 / 4;
    options.planner.policy.min_tensor_bytes = 0;
    EXPECT_TRUE(outcome(options) == expected);
  }
}

/// Mean losses of the last tenth of some steps on batches that come again.
double loss_after(forecast::TrainerOptions options, int steps) {
  TinyRun run(std::move(options));
  double sum = 0;
  for (int step = 0; step < steps; ++step) {
    run.train(step % 4, 3e-3);
    if (step >= steps - steps / 10) sum += run.loss()[0] / run.loss()[1];
  }
  return sum / (steps / 10);
}

// A band of this very run, which is deterministic: states of three bytes learn as fp32 ones do.
TEST(states, three_bytes_learn_as_fp32_does) {
  forecast::TrainerOptions wide = options_of();
  wide.model.vocabulary = 61;
  forecast::TrainerOptions narrow = wide;
  narrow.state.type = {&layers::kStatesOf3Bytes, Dtype::bf16};
  constexpr int kSteps = 200;
  const double first = loss_after(wide, 10), fp32 = loss_after(wide, kSteps);
  const double three = loss_after(narrow, kSteps);
  EXPECT_LT(fp32, 0.5 * first);
  EXPECT_NEAR(three, fp32, 0.05 * first) << "from " << first << " to " << fp32;
  EXPECT_EQ(three, loss_after(narrow, kSteps));
}

TEST(states, random_delays_change_no_bit) {
  const std::vector<std::byte> expected = outcome(options_of());
  forecast::TrainerOptions options = options_of();
  options.state.host.names = kAll;
  for (const Mode mode : {Mode::off, Mode::scopes, Mode::step}) {
    options.planner.graphs.mode = mode;
    options.planner.graphs.scopes = {"layer"};
    for (const std::uint64_t seed : {1U, 2U})
      EXPECT_TRUE(outcome(options, {.delay_seed = seed, .max_delay_s = 50e-6}) == expected);
  }
}

/// Write-backs of states are carried: copies end beside the first ops of the next step.
void carry(forecast::TrainerOptions& options) {
  options.state.host.names = kAll;
  options.planner.rates.op_s = 1e-3;
}

TEST(states, carried_write_backs_change_no_bit) {
  for (const int microbatches : {1, 3}) {
    const std::vector<std::byte> expected = outcome(options_of(Dtype::bf16, microbatches));
    forecast::TrainerOptions options = options_of(Dtype::bf16, microbatches);
    carry(options);
    for (const Mode mode : {Mode::off, Mode::scopes, Mode::step}) {
      options.planner.graphs.mode = mode;
      options.planner.graphs.scopes = {"layer"};
      const execution::HostOptions host{.delay_seed = 3, .max_delay_s = 50e-6};
      TinyRun run(options, host);
      const execution::Plan& plan = run.trainer().plan().training().front()->plan;
      EXPECT_LT(execution::first_carried(plan), static_cast<int>(plan.steps.size()));
      EXPECT_TRUE(outcome(run) == expected) << microbatches;
    }
  }
}

TEST(states, another_program_waits_for_carried_write_backs) {
  forecast::TrainerOptions options = options_of();
  options.evaluation_microbatches = 1;
  const auto losses = [&](const execution::HostOptions& host) {
    TinyRun run(options, host);
    std::vector<double> all;
    for (int i = 0; i < 3; ++i) {
      run.train(i, 1e-2);
      all.push_back(run.evaluate(9));
    }
    const std::vector<std::byte> state = run.state();
    return std::pair(all, state);
  };
  const auto expected = losses({});
  carry(options);
  for (const std::uint64_t seed : {1U, 2U, 3U})
    EXPECT_TRUE(losses({.delay_seed = seed, .max_delay_s = 50e-6}) == expected);
}

TEST(states, the_audit_finds_that_updates_touch_what_they_declare) {
  const std::vector<std::byte> expected = outcome(options_of());
  forecast::TrainerOptions options = options_of();
  options.state.host.names = kAll;
  options.planner.alignment = 4096;
  options.executor.audit = true;
  EXPECT_TRUE(outcome(options) == expected);
  for (const Names& names : {Names{}, Names{"adam_m", "adam_v"}}) {
    forecast::TrainerOptions rounded = three_bytes();
    const std::vector<std::byte> as_before = outcome(rounded);
    rounded.state.host.names = names;
    rounded.planner.alignment = 4096;
    rounded.executor.audit = true;
    EXPECT_TRUE(outcome(rounded) == as_before);
  }
}

TEST(states, a_bad_step_leaves_states_as_they_are) {
  forecast::TrainerOptions options = options_of();
  options.state.host.names = kAll;
  TinyRun run(options);
  run.train(0, 1e-2);
  const auto states = [&] {
    std::vector<double> all;
    for (const layers::Parameter& p : run.trainer().plan().model().parameters())
      for (const std::string& state : kAll) {
        const std::vector<double> values = run.read(layers::state_name(state, p.name));
        all.insert(all.end(), values.begin(), values.end());
      }
    return all;
  };
  const std::vector<double> before = states();
  const std::string weight = run.trainer().plan().model().parameters().front().name;
  std::vector<double> values = run.read(weight);
  values.front() = std::numeric_limits<double>::quiet_NaN();
  run.write(weight, values);
  run.train(1, 1e-2);
  EXPECT_FALSE(run.step_ok());
  EXPECT_TRUE(states() == before);
}

TEST(states, another_optimizer_has_its_own_names) {
  forecast::TrainerOptions options = options_of();
  options.state.optimizer = &kDescent;
  const std::vector<std::byte> expected = outcome(options);
  options.state.host.names = {"momentum", "master"};
  EXPECT_TRUE(outcome(options) == expected);
}

/// Bytes that the plan needs with all states on the device.
std::int64_t needed(const forecast::TrainerPlan& plan) {
  return static_cast<std::int64_t>(plan.layout().bytes() + plan.transient_bytes());
}

TEST(states, auto_moves_the_least_that_fits) {
  forecast::TrainerOptions options = options_of();
  options.model.vocabulary = 13;
  options.state.host = {.names = kAll, .automatic = true};
  forecast::TrainerOptions away = options;
  away.state.host.automatic = false;
  const std::int64_t least = needed(forecast::TrainerPlan(away));
  away.state.host.fraction = 0;
  const std::int64_t most = needed(forecast::TrainerPlan(away));
  ASSERT_LT(least, most);
  options.planner.policy.device_budget_bytes = most;
  EXPECT_EQ(forecast::TrainerPlan(options).layout().host_bytes(), 0U);
  for (const std::int64_t budget : {most - 1, (least + most) / 2, least}) {
    options.planner.policy.device_budget_bytes = budget;
    const forecast::TrainerPlan plan(options);
    EXPECT_GT(plan.layout().host_bytes(), 0U);
    EXPECT_LE(needed(plan), budget);
  }
  // Gradients leave behind all states, and parameters behind all gradients.
  forecast::TrainerOptions resort = options;
  resort.planner.policy.device_budget_bytes = least - (1 << 12);
  const forecast::TrainerPlan some(resort);
  const auto at_home = [](const forecast::TrainerPlan& plan, execution::Lifetime lifetime) {
    return plan.layout().bytes(lifetime, Region::host);
  };
  EXPECT_LE(needed(some), least - (1 << 12));
  EXPECT_GT(at_home(some, execution::Lifetime::gradient), 0U);
  EXPECT_GT(some.layout().bytes(execution::Lifetime::gradient), 0U);
  EXPECT_EQ(at_home(some, execution::Lifetime::parameter), 0U);
  forecast::TrainerOptions most_away = away;
  most_away.state.host = {.names = {"master", "adam_m", "adam_v", "gradient", "parameter"}};
  const std::int64_t last = needed(forecast::TrainerPlan(most_away));
  resort.planner.policy.device_budget_bytes = last;
  const forecast::TrainerPlan all(resort);
  EXPECT_EQ(needed(all), last);
  EXPECT_EQ(all.layout().bytes(execution::Lifetime::parameter), 0U);
  EXPECT_EQ(at_home(some, execution::Lifetime::optimizer_state),
            at_home(all, execution::Lifetime::optimizer_state));
  options.planner.policy.device_budget_bytes = last - 1;
  try {
    const forecast::TrainerPlan plan(options);
    FAIL() << "fits";
  } catch (const execution::Error& error) {
    EXPECT_EQ(error.exit(), execution::Exit::usage);
    EXPECT_NE(std::string(error.what()).find("offload.states"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("GiB"), std::string::npos) << error.what();
  }
}

TEST(states, auto_keeps_within_the_budget_of_the_host) {
  forecast::TrainerOptions options = options_of();
  options.model.vocabulary = 13;
  options.state.host = {.names = kAll, .automatic = true};
  options.planner.policy.device_budget_bytes = 1 << 30;
  const forecast::TrainerPlan roomy(options);
  EXPECT_EQ(roomy.layout().host_bytes(), 0U);
  options.planner.policy.device_budget_bytes = needed(roomy) - 1;
  options.planner.policy.host_budget_bytes =
      static_cast<std::int64_t>(forecast::TrainerPlan(options).host_bytes());
  EXPECT_NO_THROW(forecast::TrainerPlan{options});
  options.planner.policy.host_budget_bytes = 1024;
  EXPECT_THROW(forecast::TrainerPlan{options}, execution::Error);
}

}  // namespace
}  // namespace stowage::ctest
