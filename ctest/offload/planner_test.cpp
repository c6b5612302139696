#include "offload/planner.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "execution/executor.hpp"
#include "execution/verifier.hpp"
#include "offload/lifetimes.hpp"
#include "toy_program.hpp"

namespace stowage::ctest {
namespace {

/// Runs `steps` steps; returns the bytes of the last weight and sum.
std::vector<std::byte> run_toy(Toy& toy, int steps, const HostOptions& host,
                               const offload::PlannerOptions& options = {}, bool audit = false) {
  const auto backend = make_host_backend(host);
  Plan plan = offload::make_plan(toy.program, toy.layout, options);
  Device device(*backend, toy.layout, plan.bytes[1], 0);
  const std::vector<float> ones(Toy::kWidth, 1.0F);
  device.write("weight", std::as_bytes(std::span(ones)));
  Executor executor(toy.program, plan, device, {.ring_slots = 3, .audit = audit});
  for (int i = 0; i < steps; ++i) {
    std::vector<float> x(Toy::kWidth, 0.25F * static_cast<float>(i + 1));
    std::memcpy(executor.stage(toy.x).data(), x.data(), sizeof(float) * x.size());
    executor.step();
  }
  std::vector<std::byte> bytes(Toy::kWidth * sizeof(float));
  device.read("weight", bytes);
  const auto sum = executor.result(toy.sum);
  bytes.insert(bytes.end(), sum.begin(), sum.end());
  return bytes;
}

TEST(planner, plans_are_proven) {
  for (const int microbatches : {1, 2, 3, 5}) {
    Toy toy(microbatches);
    const Plan plan = offload::make_plan(toy.program, toy.layout);
    const PlannedProgram planned{&toy.program, &plan};
    EXPECT_TRUE(verify({&planned, 1}).empty());
  }
}

/// Exchanges on tensors of their own: of layers, of stages, of gradients, of stages, of layers.
class Exchanges {
 public:
  Exchanges() {
    program_.begin_section("all");
    for (const char* group : {"tensor", "pipeline", "data", "pipeline", "tensor"}) {
      Op op;
      op.name = fmt::format("{} {}", group, program_.ops().size());
      op.lane = Lane::comm;
      op.uses = {{program_.scratch(op.name, Dtype::fp32, {8}), Access::write}};
      op.launch = [](Queue&, std::span<const View>) {};
      op.communication = {"all_gather", group, {0, 1}, 8, Dtype::fp32, "", {}};
      program_.append(op);
    }
    program_.finish();
  }

  /// "1<0": the second follows the first, by an event.
  std::string order(const offload::Chains& chains) const {
    PersistentLayout layout;
    layout.close();
    const Plan plan = offload::make_plan(program_, layout,
                                         {.chains = chains, .enough_bytes = offload::kUnbounded});
    std::map<int, int> recorded;
    std::string text;
    for (const Step& step : plan.steps) {
      if (step.what == Step::What::mark) continue;
      for (const int event : step.waits)
        if (recorded.contains(event)) text += fmt::format("{}<{} ", step.op, recorded.at(event));
      if (step.records >= 0) recorded[step.records] = step.op;
    }
    return text;
  }

 private:
  Program program_{"exchanges"};
};

TEST(planner, exchanges_of_several_groups_are_one_chain_but_for_one_apart) {
  const Exchanges exchanges;
  EXPECT_EQ(exchanges.order({}), "");
  EXPECT_EQ(exchanges.order({true, ""}), "1<0 2<1 3<2 4<3 ");
  EXPECT_EQ(exchanges.order({true, "pipeline"}), "2<0 4<2 ") << "stages keep their queue's order";
}

TEST(planner, two_programs_share_memory) {
  Toy a(1), b(3, 7);
  const Plan plan_a = offload::make_plan(a.program, a.layout);
  const Plan plan_b = offload::make_plan(b.program, b.layout);
  const PlannedProgram both[] = {{&a.program, &plan_a}, {&b.program, &plan_b}};
  EXPECT_TRUE(verify(both).empty());
}

TEST(planner, memory_does_not_grow_with_the_number_of_microbatches) {
  Toy three(3), many(50);
  const Plan a = offload::make_plan(three.program, three.layout);
  const Plan b = offload::make_plan(many.program, many.layout);
  EXPECT_EQ(a.bytes[1], b.bytes[1]);
  EXPECT_EQ(a.steps.size(), b.steps.size());
}

// The slots of the ring go round many times.
TEST(planner, random_delays_change_no_bit) {
  constexpr int kSteps = 24;
  Toy plain(3), delayed(3);
  const auto expected = run_toy(plain, kSteps, {});
  for (const std::uint64_t seed : {1U, 2U, 3U})
    EXPECT_EQ(run_toy(delayed, kSteps, {.delay_seed = seed, .max_delay_s = 300e-6}), expected);
}

TEST(planner, audit_finds_nothing_in_a_sound_program) {
  Toy plain(3), audited(3);
  EXPECT_EQ(run_toy(audited, 2, {}, {.alignment = 4096}, true), run_toy(plain, 2, {}));
}

TEST(planner, peak_is_the_highest_byte_changed_and_the_largest_sum_of_live_bytes) {
  constexpr std::size_t kSlack = std::size_t{64} << 20;
  Toy toy(3);
  const auto backend = make_host_backend();
  const Plan plan = offload::make_plan(toy.program, toy.layout);
  Device device(*backend, toy.layout, plan.bytes[1], 0, kSlack);
  const std::span<std::byte> arena = device.device_arena();
  std::fill(arena.begin(), arena.end(), std::byte{0x5b});
  const std::vector<float> ones(Toy::kWidth, 1.0F);
  device.write("weight", std::as_bytes(std::span(ones)));
  Executor executor(toy.program, plan, device);
  std::memcpy(executor.stage(toy.x).data(), ones.data(), sizeof(float) * ones.size());
  executor.step();
  device.synchronize();
  std::size_t highest = arena.size();
  while (highest > 0 && arena[highest - 1] == std::byte{0x5b}) --highest;
  const std::size_t peak =
      static_cast<std::size_t>(device.base(Region::transient) - arena.data()) + plan.bytes[1];
  EXPECT_LE(highest, peak);
  EXPECT_GT(highest + kAlignment, peak);
  // Counted op by op, from first and last uses, without the planner's help.
  std::size_t live = 0, most = 0;
  std::vector<int> last(plan.places.size(), -1);
  std::vector<char> alive(plan.places.size(), 0);
  std::vector<int> issued;
  for_each_issued(plan, 1 << 20, [&](int step, int, int) { issued.push_back(step); });
  for (std::size_t i = 0; i < issued.size(); ++i)
    for (const int place : plan.steps[issued[i]].places) last[place] = static_cast<int>(i);
  for (std::size_t i = 0; i < issued.size(); ++i) {
    const auto& places = plan.steps[issued[i]].places;
    for (const int place : places) {
      const Place& p = plan.places[place];
      if (p.region != Region::transient || alive[place]) continue;
      alive[place] = 1;
      live += align_up(p.bytes);
    }
    most = std::max(most, live);
    for (const int place : places) {
      const Place& p = plan.places[place];
      if (last[place] != static_cast<int>(i) || !alive[place]) continue;
      alive[place] = 0;
      live -= align_up(p.bytes);
    }
  }
  EXPECT_EQ(most, plan.live_bytes);
  EXPECT_EQ(most, plan.bytes[1]);
}

TEST(planner, input_that_was_not_staged_is_named) {
  Toy toy;
  const auto backend = make_host_backend();
  const Plan plan = offload::make_plan(toy.program, toy.layout);
  Device device(*backend, toy.layout, plan.bytes[1], 0);
  Executor executor(toy.program, plan, device);
  try {
    executor.step();
    FAIL() << "a step ran without its input";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("input x of program toy"), std::string::npos);
  }
}

TEST(planner, nothing_is_allocated_after_set_up) {
  Toy toy(3);
  const auto backend = make_host_backend();
  const Plan plan = offload::make_plan(toy.program, toy.layout);
  Device device(*backend, toy.layout, plan.bytes[1], 0);
  Executor executor(toy.program, plan, device);
  const std::vector<float> ones(Toy::kWidth, 1.0F);
  device.write("weight", std::as_bytes(std::span(ones)));
  const std::uint64_t before = backend->allocations();
  for (int i = 0; i < 4; ++i) {
    std::memcpy(executor.stage(toy.x).data(), ones.data(), sizeof(float) * ones.size());
    executor.step();
  }
  device.synchronize();
  EXPECT_EQ(backend->allocations(), before);
}

}  // namespace
}  // namespace stowage::ctest
