#include "run/step/copies.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "offload/planner.hpp"
#include "run/record/profile.hpp"

namespace stowage::run {
namespace {

TEST(copies, of_modules_that_move_stand_below_their_headings) {
  std::vector<offload::ModuleSummary> modules(2);
  modules[0].module = "mlp_norm";
  offload::ModuleSummary& moved = modules[1];
  moved.module = "mlp_act";
  moved.offloaded = std::size_t{3} << 29;
  moved.copies = 4;
  moved.d2h_s = 1.5 * (1 << 30) / 50e9;
  moved.h2d_s = 1.5 * (1 << 30) / 40e9;
  moved.waited_s = 1.5e-3;
  EXPECT_EQ(copies_heading("plan"),
            "#   plan                      "
            "module            GiB out  copies  d2h GB/s  h2d GB/s  waits ms\n");
  EXPECT_EQ(copies_text("plan", modules),
            "#   plan                      "
            "mlp_act             1.500       4      50.0      40.0     1.500\n");
  EXPECT_EQ(copies_text("plan", {modules[0]}), "");
  EXPECT_TRUE(any_copies(modules));
  EXPECT_FALSE(any_copies({modules[0]}));
  EXPECT_EQ(exposed_s(modules), 1.5e-3);
  EXPECT_DOUBLE_EQ(copying_s(modules), 1.5 * (1 << 30) / 50e9 + 1.5 * (1 << 30) / 40e9);
}

TEST(copies, that_are_carried_hold_up_the_next_step) {
  using execution::Lane;
  using execution::Step;
  execution::Program program("carries");
  const execution::Tensor state = program.add(execution::one_buffer(
      "state", execution::Dtype::fp32, {1024}, execution::Lifetime::optimizer_state));
  program.begin_section("step");
  program.finish();
  execution::Plan plan;
  plan.decisions = {execution::Decision::keep};
  plan.places.resize(1);
  plan.places[0].tensor = state;
  plan.places[0].bytes = 4096;
  plan.queues = {{"compute", Lane::compute}, {"d2h", Lane::d2h}};
  plan.steps.resize(4);
  plan.steps[1].waits = {0};  // for the copy of the step before
  plan.steps[2].what = Step::What::mark;
  plan.steps[3].what = Step::What::copy_out;
  plan.steps[3].queue = 1;
  plan.steps[3].places = {0};
  plan.steps[3].records = 0;
  plan.sections = {{0, 4, 1}};
  plan.events = 1;
  // A step of a second; the copy ends 0.2 s behind it, 0.1 s after the next one's first op.
  const auto modules = timed_modules(
      program, plan, {{0, 0, 100, 100.1}, {1, 0, 100.2, 101}, {3, 0, 101, 101.2}}, {});
  ASSERT_EQ(modules.size(), 1U);
  EXPECT_EQ(modules[0].module, "states");
  EXPECT_NEAR(modules[0].waited_s, 0.1, 1e-9);
  EXPECT_NEAR(modules[0].d2h_s, 0.2, 1e-9);
}

// The copy of the output back is the only other op.
TEST(profile, one_op_below_a_thousandth_of_the_step_is_counted_among_the_others) {
  execution::Program program("profiled");
  program.begin_section("step");
  const execution::Tensor sum = program.output("sum", execution::Dtype::fp32, {1});
  execution::Op slow;
  slow.name = "layer/slow";
  slow.uses = {{sum, execution::Access::write}};
  slow.launch = [](execution::Queue& queue, std::span<const execution::View>) {
    queue.enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(40)); });
  };
  program.append(std::move(slow));
  program.finish();
  execution::PersistentLayout layout;
  layout.close();
  const execution::Plan plan = offload::make_plan(program, layout);
  const auto backend = execution::make_host_backend();
  execution::Device device(*backend, layout, plan.bytes[1], 0);
  execution::Executor executor(program, plan, device);
  std::string text;
  const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
  for (int tries = 0; tries < 50 && !says(" 1 others "); ++tries) {  // other work may hold it up
    Profile profile(*backend, 1);
    profile.begin(executor);
    executor.step();
    profile.end(1);
    text = profile.text();
  }
  EXPECT_TRUE(says(" 1 others ")) << text;
  EXPECT_TRUE(says("layer/slow")) << text;
}

}  // namespace
}  // namespace stowage::run
