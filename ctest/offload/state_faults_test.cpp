// States with their home on the host, and plans of them that are broken in one way each.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "execution/error.hpp"
#include "execution/persistent.hpp"
#include "execution/plan_shape.hpp"
#include "execution/verifier.hpp"
#include "offload/planner.hpp"
#include "offload/prediction.hpp"

namespace stowage::ctest {
namespace {

using namespace execution;

constexpr std::int64_t kWidth = 2048;  // of a window: a half of a state
constexpr std::size_t kWindow = kWidth * sizeof(float);
constexpr int kStates = 4;

/// Some states, each used by two ops, behind ops of another section that need more memory.
struct Updates {
  Program program{"updates"};
  PersistentLayout layout;

  explicit Updates(Access of_states = Access::update) {
    layout.open_bucket("states", "", Dtype::fp32, {}, Region::host);
    for (int i = 0; i < kStates; ++i) layout.add(state(i));
    layout.open_bucket("weight", "", Dtype::fp32);
    layout.add(one_buffer("weight", Dtype::fp32, {kWidth}, Lifetime::parameter));
    layout.close();
    const Tensor weight =
        program.add(one_buffer("weight", Dtype::fp32, {kWidth}, Lifetime::parameter));
    program.begin_section("passes");
    Tensor last = weight;
    for (int i = 0; i < 6; ++i) {
      const Tensor next = program.scratch("x" + std::to_string(i), Dtype::fp32, {5 * kWidth / 2});
      append("pass" + std::to_string(i), {{last, Access::read}, {next, Access::write}});
      last = next;
    }
    program.begin_section("epilogue");
    for (int i = 0; i < kStates; ++i)
      for (int half = 0; half < 2; ++half)
        append("update" + std::to_string(i) + "." + std::to_string(half),
               {{program.add(state(i)), of_states, {half * kWidth, (half + 1) * kWidth}},
                {weight, Access::update}});
    program.finish();
  }

 private:
  static TensorInfo state(int i) {
    return one_buffer("state" + std::to_string(i), Dtype::fp32, {2 * kWidth},
                      Lifetime::optimizer_state);
  }
  void append(std::string name, std::vector<Use> uses) {
    Op op;
    op.name = std::move(name);
    op.uses = std::move(uses);
    op.cost.bytes = 1e6;
    op.launch = [](Queue&, std::span<const View>) {};
    program.append(std::move(op));
  }
};

struct Broken {
  Updates made;
  Plan plan;

  explicit Broken(const offload::PlannerOptions& options = {}, Access of_states = Access::update)
      : made(of_states), plan(offload::make_plan(made.program, made.layout, options)) {
    EXPECT_EQ(verify_it(), std::vector<std::string>{});
  }
  std::vector<std::string> verify_it() const {
    const PlannedProgram planned{&made.program, &plan};
    return verify({&planned, 1});
  }
  /// The step of a kind that copies a half of a state.
  std::size_t index(Step::What what, int state, int half) const {
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      const Step& step = plan.steps[i];
      if (step.what != what) continue;
      const Place& place = plan.places[step.places[0]];
      if (made.program.info(place.tensor).name == "state" + std::to_string(state) &&
          place.first == static_cast<std::size_t>(half) * kWindow)
        return i;
    }
    throw Error(Exit::runtime, "no copy of state" + std::to_string(state));
  }
  Step& step(Step::What what, int state, int half) { return plan.steps[index(what, state, half)]; }
  std::size_t update(int state, int half) const {
    const std::string name = "update" + std::to_string(state) + "." + std::to_string(half);
    for (std::size_t i = 0; i < plan.steps.size(); ++i)
      if (plan.steps[i].op >= 0 && made.program.ops()[plan.steps[i].op].name == name) return i;
    throw Error(Exit::runtime, "no " + name);
  }
  Place& window(int state, int half) {
    return plan.places[step(Step::What::copy_in, state, half).places[1]];
  }
  /// Expects a fault that has all of `words`.
  void expect_caught(std::initializer_list<const char*> words) const {
    const std::vector<std::string> faults = verify_it();
    ASSERT_FALSE(faults.empty());
    EXPECT_TRUE(std::ranges::any_of(faults, [&](const std::string& fault) {
      return std::ranges::all_of(
          words, [&](const char* word) { return fault.find(word) != std::string::npos; });
    })) << faults.front();
  }
};

TEST(state_faults, windows_are_loaded_early_and_share_bytes) {
  Broken b;
  EXPECT_EQ(b.plan.bytes[static_cast<int>(Region::host)], 2 * kStates * kWindow);
  EXPECT_EQ(b.plan.bytes[static_cast<int>(Region::persistent)], kWindow);
  EXPECT_LT(b.index(Step::What::copy_in, 0, 1), b.update(0, 0));
  // Five halves are what the passes need at their fullest moment; the windows are eight.
  EXPECT_LE(b.plan.bytes[static_cast<int>(Region::transient)], 5 * kWindow);
  EXPECT_LT(b.index(Step::What::copy_out, 0, 0), b.index(Step::What::copy_in, 3, 1));
}

TEST(state_faults, early_loads_hide_behind_the_passes) {
  offload::PlannerOptions options;
  options.rates.op_s = 1e-3;
  options.policy.caps.h2d_bytes = -1;
  const Broken early(options);
  options.policy.caps.h2d_bytes = 8 * kWindow;  // loads stay in their section
  const Broken late(options);
  EXPECT_LT(early.index(Step::What::copy_in, 0, 0), early.index(Step::What::copy_in, 0, 1));
  EXPECT_LE(early.plan.exposed_s, late.plan.exposed_s);
}

/// With room for all windows beside the passes the first load begins with them, unless bytes in
/// flight have a cap.
TEST(state_faults, loads_cross_sections_only_without_a_cap) {
  offload::PlannerOptions options;
  options.rates.op_s = 1e-3;
  options.policy.kind = offload::Policy::Kind::automatic;
  options.policy.device_budget_bytes = 64 * kWindow;
  for (const std::int64_t cap : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{8 * kWindow}}) {
    options.policy.caps.h2d_bytes = cap;
    const Broken b(options);
    const bool crosses = std::cmp_less(b.index(Step::What::copy_in, 0, 0), b.plan.sections[0].end);
    EXPECT_EQ(crosses, cap < 0) << cap;
  }
}

TEST(state_faults, a_load_left_out) {
  Broken b;
  b.step(Step::What::copy_in, 1, 0).what = Step::What::mark;
  b.expect_caught({"update1.0 reads state1", "read before its write"});
}

/// The values before the first step are checked like those that an op wrote.
TEST(state_faults, a_load_left_out_of_a_state_that_no_op_writes) {
  Broken b({}, Access::read);
  b.step(Step::What::copy_in, 1, 0).what = Step::What::mark;
  b.expect_caught({"update1.0 reads state1", "read before its write"});
}

TEST(state_faults, a_write_back_left_out) {
  Broken b;
  b.step(Step::What::copy_out, 1, 0).what = Step::What::mark;
  b.expect_caught({"state1 is not back in its home on the host at the end of program updates"});
  b.expect_caught({"copy from host", "state1"});
}

TEST(state_faults, a_window_of_another_range) {
  Broken b;
  Step& load = b.step(Step::What::copy_in, 1, 0);
  load.places[0] = b.step(Step::What::copy_in, 1, 1).places[0];
  b.expect_caught({"is between host of state1 and transient of state1"});
}

TEST(state_faults, a_write_back_to_the_home_of_another) {
  Broken b;
  Place& home = b.plan.places[b.step(Step::What::copy_out, 1, 0).places[1]];
  home.offset = b.plan.places[b.step(Step::What::copy_out, 2, 0).places[1]].offset;
  b.expect_caught({"persistent tensors state2 and state1 share bytes"});
}

TEST(state_faults, an_update_that_does_not_wait_for_its_load) {
  Broken b;
  b.plan.steps[b.update(0, 0)].waits.clear();
  b.expect_caught({"update0.0 reads state0", "without an edge after"});
}

TEST(state_faults, a_write_back_that_does_not_wait_for_the_update) {
  Broken b;
  b.step(Step::What::copy_out, 2, 0).waits.clear();
  b.expect_caught({"copy to host reads state2", "without an edge after"});
}

TEST(state_faults, a_window_reused_under_its_write_back) {
  Broken b;
  // A load into bytes that were a window follows the update there, not its write-back.
  const auto reuses = [&](const Step& in, const Step& out) {
    if (out.what != Step::What::copy_out || in.what != Step::What::copy_in) return false;
    const Place& used = b.plan.places[out.places[0]];
    const Place& window = b.plan.places[in.places[1]];
    return window.offset < used.end() && used.offset < window.end();
  };
  std::vector<Step>& steps = b.plan.steps;
  auto out = steps.begin(), load = steps.end();
  while (load == steps.end() && ++out != steps.end())
    load = std::find_if(out, steps.end(), [&](const Step& in) { return reuses(in, *out); });
  ASSERT_NE(load, steps.end());
  Step& update = out[-1];  // the write-back is right behind it
  ASSERT_EQ(update.what, Step::What::run);
  if (update.records < 0) update.records = b.plan.events++;
  load->waits = {update.records};
  b.expect_caught({"copy from host writes state", "over bytes of state",
                   "copy to host may still be reading: missing edge"});
}

TEST(state_faults, a_window_on_another_that_is_in_use) {
  Broken b;
  b.window(0, 1).offset = b.window(0, 0).offset;
  b.expect_caught({"state0", "early reuse"});
}

TEST(state_faults, a_load_before_the_write_back_of_the_step_before) {
  Broken b;
  // The join lets go of the copies to the host, and the next step's loads are not behind them.
  Step& join = b.plan.steps.back();
  const std::vector<int> by_event = recorders(b.plan);
  std::erase_if(join.waits, [&](int event) {
    return b.plan.steps[by_event[event]].what == Step::What::copy_out;
  });
  b.expect_caught({"queue d2h is not joined at the end of program updates"});
}

TEST(state_faults, a_tensor_with_two_homes) {
  Broken b;
  Place& window = b.window(0, 0);
  window.region = Region::persistent;
  window.offset = 0;
  b.expect_caught({"state0 lies in the persistent region, but its home is the host"});
}

TEST(state_faults, another_tensor_in_the_bytes_of_a_home) {
  Broken b;
  const auto other = std::ranges::find_if(b.plan.places, [&](const Place& place) {
    return b.made.program.info(place.tensor).name == "x1";
  });
  other->region = Region::host;
  other->offset = b.plan.bytes[static_cast<int>(Region::host)] - kAlignment;
  b.expect_caught({"x1 lies in the bytes of homes on the host"});
}

TEST(state_faults, an_op_beyond_its_window) {
  Broken b;
  Step& update = b.plan.steps[b.update(0, 0)];
  update.places[0] = b.step(Step::What::copy_in, 0, 1).places[1];
  b.expect_caught({"operand state0 of update0.0 is bound to state0"});
}

/// Plans whose last write-backs are carried: ops take long beside copies.
struct Carried : Broken {
  explicit Carried(offload::PlannerOptions options = {}) : Broken(slow(std::move(options))) {}

  static offload::PlannerOptions slow(offload::PlannerOptions options) {
    options.rates.op_s = 1e-3;
    return options;
  }
  int first() const { return first_carried(plan); }
};

TEST(state_faults, the_last_write_backs_are_carried_where_memory_allows) {
  Carried b;
  // Beside the first pass, half of the fullest moment is free: two windows and a half.
  EXPECT_EQ(static_cast<int>(b.plan.steps.size()) - b.first(), 2);
  EXPECT_GE(b.index(Step::What::copy_out, 3, 0), static_cast<std::size_t>(b.first()));
  EXPECT_LE(b.plan.bytes[static_cast<int>(Region::transient)], 5 * kWindow);
  offload::PlannerOptions capped;
  capped.policy.caps.max_inflight = 1000;  // copies that are counted end with the step
  const Carried none(capped);
  EXPECT_EQ(none.first(), static_cast<int>(none.plan.steps.size()));
  EXPECT_LT(b.plan.exposed_s, none.plan.exposed_s);
}

TEST(state_faults, a_load_that_does_not_wait_for_a_carried_write_back) {
  Carried b;
  for (Step& step : b.plan.steps)
    if (step.what == Step::What::copy_in) step.waits.clear();
  b.expect_caught({"copy from host reads state3", "without an edge after its write by copy to"});
}

TEST(state_faults, bytes_taken_under_a_carried_write_back) {
  Carried b;
  const std::vector<int> by_event = recorders(b.plan);
  for (Step& step : b.plan.steps)
    std::erase_if(step.waits, [&](int event) { return by_event[event] >= b.first(); });
  b.expect_caught({"pass1 writes x1 over bytes of state3 that copy to host",
                   "may still be reading: missing edge"});
}

TEST(state_faults, a_carried_write_back_that_does_not_wait_for_the_update) {
  Carried b;
  for (int i = b.first(); i < static_cast<int>(b.plan.steps.size()); ++i)
    b.plan.steps[static_cast<std::size_t>(i)].waits.clear();
  b.expect_caught({"copy to host reads state3", "without an edge after"});
}

TEST(state_faults, a_carried_write_back_left_out) {
  Carried b;
  b.plan.steps.pop_back();
  --b.plan.sections.back().end;
  b.expect_caught({"state3 is not back in its home on the host at the end of program updates"});
}

TEST(state_faults, another_copy_behind_the_join) {
  Carried b;
  b.plan.steps.back().what = Step::What::mark;
  b.expect_caught({"is behind the join: only copies to homes may be, once a step"});
}

TEST(state_faults, another_program_begins_when_carried_write_backs_have_ended) {
  Carried b;
  const Plan once = Broken().plan;  // nothing is carried
  const PlannedProgram planned[] = {{&b.made.program, &b.plan}, {&b.made.program, &once}};
  EXPECT_EQ(verify(planned), std::vector<std::string>{});
}

TEST(state_faults, a_budget_of_the_host_counts_homes) {
  offload::PlannerOptions options;
  const Updates made;
  options.policy.host_budget_bytes = 2 * kStates * kWindow;
  EXPECT_NO_THROW(offload::make_plan(made.program, made.layout, options));
  --options.policy.host_budget_bytes;
  try {
    offload::make_plan(made.program, made.layout, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
    EXPECT_STREQ(error.what(),
                 "offload.host_budget_bytes = 65535: states on the host (offload.states) "
                 "need 65536 bytes (0.000 GiB), 1 bytes (0.000 GiB) more");
  }
}

TEST(state_faults, a_cap_of_copies_by_module_counts_no_windows) {
  offload::PlannerOptions options;
  options.policy.caps.max_inflight = 0;
  const Broken b(options);
  EXPECT_EQ(std::ranges::count(b.plan.steps, Step::What::copy_out, &Step::what), 2 * kStates);
  EXPECT_EQ(std::ranges::count(b.plan.steps, Step::What::mark, &Step::what), 2);
}

TEST(state_faults, caps_of_bytes_count_windows) {
  for (const std::int64_t cap : {1, 2}) {
    offload::PlannerOptions options;
    options.policy.caps.d2h_bytes = cap * static_cast<std::int64_t>(kWindow);
    options.policy.caps.h2d_bytes = cap * static_cast<std::int64_t>(kWindow);
    const Broken b(options);
    EXPECT_GT(b.plan.time_s, 0);
  }
}

/// Gradients of one bucket on the host: two ops make them, an exchange takes the bucket by one
/// address, another op reads some elements of the second.
struct Exchanged {
  static constexpr std::int64_t kElements = 1500;  ///< of a gradient; the rest is padding
  PersistentLayout layout;
  Program program;
  Plan plan;

  /// @param all_made the second gradient is, too
  explicit Exchanged(bool all_made = true) : program("exchanged", &layout) {
    layout.open_bucket("bucket", "", Dtype::fp32, {}, Region::host);
    for (const char* name : {"g0", "g1"})
      layout.add(one_buffer(name, Dtype::fp32, {kElements}, Lifetime::gradient));
    layout.close();
    const Tensor g0 = program.add(layout.info("g0")), g1 = program.add(layout.info("g1"));
    append("make0", {{g0, Access::write}});
    if (all_made) append("make1", {{g1, Access::write}});
    append("sum", program.uses(program.find("bucket"), {}, Access::update));
    append("some", {{g1, Access::read, {300, 400}}, {g1, Access::read, {1000, 1100}}});
    program.finish();
    plan = offload::make_plan(program, layout, {});
  }
  void append(std::string name, std::vector<Use> uses) {
    Op op;
    op.name = std::move(name);
    op.uses = std::move(uses);
    op.launch = [](Queue&, std::span<const View>) {};
    program.append(std::move(op));
  }
  Step& step(const std::string& what, const std::string& tensor) {
    return *std::ranges::find_if(plan.steps, [&](const Step& step) {
      return describe(program, step).starts_with(what) && !step.places.empty() &&
             program.info(plan.places[step.places[0]].tensor).name == tensor;
    });
  }
  std::string faults() const {
    const PlannedProgram planned{&program, &plan};
    std::string all;
    for (const std::string& fault : verify({&planned, 1})) all += fault + "\n";
    return all;
  }
};

TEST(state_faults, an_op_has_one_window_of_a_tensor) {
  Exchanged made;
  EXPECT_EQ(made.faults(), "");
  const Step& sum = made.step("sum", "bucket");
  ASSERT_EQ(sum.places.size(), 4U);  // of two parts and what pads them
  for (const int place : sum.places) EXPECT_EQ(place, sum.places[0]);
  const Place& bucket = made.plan.places[sum.places[0]];
  EXPECT_EQ(bucket.first, 0U);
  EXPECT_EQ(bucket.bytes, 2 * kWindow);
  const Step& some = made.step("some", "g1");
  EXPECT_EQ(some.places[0], some.places[1]);
  const Place& window = made.plan.places[some.places[0]];
  EXPECT_EQ(window.first, kAlignment);  // 1200 is no address for a copy
  EXPECT_EQ(window.first + window.bytes, 1100 * sizeof(float));
}

TEST(state_faults, a_gradient_on_the_host_that_is_read_before_any_write) {
  EXPECT_NE(Exchanged(false).faults().find("sum reads bucket before its write"), std::string::npos);
}

TEST(state_faults, a_bucket_loaded_before_a_part_is_written_back) {
  Exchanged made;
  made.step("copy from host", "bucket").waits.clear();
  EXPECT_NE(made.faults().find("copy from host reads bucket without an edge after its write by"),
            std::string::npos)
      << made.faults();
}

TEST(state_faults, a_part_that_is_not_written_back_before_its_exchange) {
  Exchanged made;
  made.step("copy to host", "g1").what = Step::What::mark;
  EXPECT_NE(made.faults().find("sum reads bucket as copy from host left it"), std::string::npos)
      << made.faults();
}

TEST(state_faults, a_bucket_that_is_not_written_back) {
  Exchanged made;
  made.step("copy to host", "bucket").what = Step::What::mark;
  EXPECT_NE(made.faults().find("bucket is not back in its home on the host at the end of program"),
            std::string::npos)
      << made.faults();
}

}  // namespace
}  // namespace stowage::ctest
