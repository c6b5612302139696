// Plans of random programs, sound and mutated, judged by the verifier and by an oracle that shares
// nothing with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <random>
#include <vector>

#include "ctest/support/mutate.hpp"
#include "ctest/support/seed.hpp"
#include "execution/error.hpp"
#include "execution/plan_shape.hpp"
#include "execution/verifier.hpp"
#include "offload/draft.hpp"
#include "offload/gradient_memory_reuse.hpp"
#include "offload/planner.hpp"
#include "oracle.hpp"
#include "random_program.hpp"

namespace stowage::ctest {
namespace {

using Rng = std::mt19937_64;
using Mode = offload::GraphOptions::Mode;

int draw(Rng& rng, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(rng);
}
template <class T>
T& any(Rng& rng, std::vector<T>& list) {
  return list[draw(rng, 0, static_cast<int>(list.size()) - 1)];
}

RandomShape random_shape(std::uint64_t seed) {
  Rng rng(seed);
  return {.seed = seed,
          .layers = draw(rng, 1, 4),
          .microbatches = draw(rng, 1, 4),
          .width = draw(rng, 0, 1) == 0 ? 40 : 900,
          .communicates = draw(rng, 0, 2) > 0,
          .stores_early = seed % 8 == 0,
          .in_parts = seed % 3 != 0,
          .states_on_host = seed % 5 < 2 ? std::nullopt : std::optional(seed % 5 > 2),
          .weights_on_host = seed % 5 == 4,
          .buckets = seed % 2 == 0};
}

offload::PlannerOptions random_options(Rng& rng) {
  offload::PlannerOptions options;
  options.graphs.mode = static_cast<Mode>(draw(rng, 0, 2));
  for (const char* scope : {"attn", "mamba", "mlp", "moe", "moe_router", "layer"})
    if (draw(rng, 0, 1) == 0) options.graphs.scopes.emplace_back(scope);
  options.graphs.replay_queues = draw(rng, 0, 3);
  options.graphs.delay_until_graph = draw(rng, 0, 2) == 0;
  if (draw(rng, 0, 1) == 0) options.graphs.copies = offload::GraphOptions::Copies::overlapping;
  offload::Policy& policy = options.policy;
  policy.kind = offload::Policy::Kind::manual;
  for (const char* name : {"core_attn", "mamba_ssm", "mlp_act", "moe_act", "mlp_fc1", "mlp_norm"}) {
    if (draw(rng, 0, 2) == 0) continue;
    policy.offload.push_back({name, {name}});
    // In both lists: what cannot be computed again is offloaded.
    if (draw(rng, 0, 1) == 0) policy.recompute.push_back({name, {name}});
  }
  policy.min_tensor_bytes = draw(rng, 0, 2) == 0 ? 600 : 0;
  policy.keep_exposed = false;
  return options;
}

/// What the random programs that may keep tensors where gradients come later made of it.
struct Reused {
  int tenants = 0;       ///< places there
  int with_reruns = 0;   ///< plans that have tenants and compute again
  int with_copies = 0;   ///< plans that have tenants and copies
  int left_in_time = 0;  ///< places of tensors in gradient memory that a rerun reads too late
};

/// Nothing where a deck is refused.
std::optional<Plan> try_plan(const RandomProgram& random, const offload::PlannerOptions& options) {
  try {
    return offload::make_plan(random.program, random.layout, options);
  } catch (const execution::Error& error) {
    EXPECT_EQ(error.exit(), execution::Exit::usage) << error.what();
    return std::nullopt;
  }
}

/// An automatic policy does not offload instead what is listed and cannot be computed again.
void list_what_can_be_rerun(offload::PlannerOptions options, const RandomProgram& random,
                            std::vector<offload::ModuleName>& listed) {
  options.policy.kind = offload::Policy::Kind::manual;
  std::erase_if(listed, [&](const offload::ModuleName& name) {
    options.policy.recompute = {name};
    return !try_plan(random, options);
  });
}

/// An automatic plan that reuses gradient memory: half of them, and all that make reruns read late,
/// compute again what is listed, and half have to do with less than keeping the rest needs, if that
/// can be.
Plan plan_with_reuse(Rng& rng, offload::PlannerOptions& options, const RandomProgram& random) {
  options.policy.kind = offload::Policy::Kind::automatic;
  options.policy.offload.clear();
  std::vector<offload::ModuleName>& recompute = options.policy.recompute;
  if (draw(rng, 0, 1) == 0) recompute.clear();
  if (random.shape().stores_early)
    recompute = {{"inner", {"core_attn", "mamba_ssm", "mlp_act", "moe_act"}}};
  list_what_can_be_rerun(options, random, recompute);
  const auto persistent = static_cast<std::int64_t>(random.layout.bytes());
  options.policy.device_budget_bytes = persistent + (1 << 24);
  Plan roomy = offload::make_plan(random.program, random.layout, options);
  if (draw(rng, 0, 1) == 0) return roomy;
  const auto needed = static_cast<std::int64_t>(roomy.bytes[static_cast<int>(Region::transient)]);
  options.policy.device_budget_bytes = persistent + needed * draw(rng, 70, 95) / 100;
  return try_plan(random, options).value_or(std::move(roomy));
}

void count_reuse(const RandomProgram& random, const offload::PlannerOptions& options,
                 const Plan& plan, Reused& reused) {
  int tenants = 0;
  for (const Place& place : plan.places)
    tenants += offload::in_gradient_memory(random.program, place);
  if (tenants == 0) return;
  const auto has = [&](Step::What what) {
    return std::any_of(plan.steps.begin(), plan.steps.end(),
                       [&](const Step& step) { return step.what == what; });
  };
  reused.tenants += tenants;
  reused.with_reruns += has(Step::What::rerun);
  reused.with_copies += has(Step::What::copy_out);
  const offload::Drafts drafts(random.program, random.layout, options.policy, options.rates,
                               options.alignment);
  for (const Place& place : plan.places)
    reused.left_in_time += place.region == Region::transient &&
                           drafts.gradient_memory_reuse().has(place.tensor) &&
                           plan.decisions[place.tensor.id] == Decision::keep;
}

/// Breaks a plan, or not: that is for the judges to say.
class Mutator {
 public:
  Mutator(Rng& rng, const Program& program, Plan& plan)
      : rng_(rng), program_(program), plan_(plan) {}

  std::string mutate() {
    switch (draw(rng_, 0, 8)) {
      case 0:
      case 1:
      case 2:
        return drop_wait();
      case 3:
        return wait_for_another_event();
      case 4:
        return move_place();
      case 5:
        return swap_steps();
      case 6:
        return change_queue();
      case 7:
        return shift_segment();
      default:
        return drop_copy();
    }
  }

 private:
  Step* with_waits() {
    for (int tries = 0; tries < 1000; ++tries)
      if (Step& step = any(rng_, plan_.steps); !step.waits.empty()) return &step;
    return nullptr;
  }
  std::string drop_wait() {
    Step* step = with_waits();
    if (step == nullptr) return "nothing";
    step->waits.erase(step->waits.begin() +
                      draw(rng_, 0, static_cast<int>(step->waits.size()) - 1));
    return "a wait less";
  }
  std::string wait_for_another_event() {
    Step* step = with_waits();
    if (step == nullptr) return "nothing";
    any(rng_, step->waits) = draw(rng_, 0, plan_.events - 1);
    return "a wait for another event";
  }
  std::string move_place() {
    Place& place = any(rng_, plan_.places);
    if (is_home(place)) return "nothing";
    const std::size_t room = plan_.bytes[static_cast<int>(place.region)] - align_up(place.bytes);
    place.offset =
        static_cast<std::size_t>(draw(rng_, 0, static_cast<int>(room / kAlignment))) * kAlignment;
    return "another place";
  }
  /// Of what outlives a step: the layout says where.
  bool is_home(const Place& place) const {
    return place.region != Region::transient && is_persistent(program_.info(place.tensor).lifetime);
  }
  std::string swap_steps() {
    const int last = static_cast<int>(plan_.steps.size()) - 1;
    const int i = draw(rng_, 1, last - 1);
    const int j = std::min(last - 1, i + draw(rng_, 1, 4));
    std::swap(plan_.steps[i], plan_.steps[j]);
    return "two steps swapped";
  }
  std::string change_queue() {
    Step& step = any(rng_, plan_.steps);
    const int queue = draw(rng_, 0, static_cast<int>(plan_.queues.size()) - 1);
    const auto lane = [&](int q) { return plan_.queues[q].lane; };
    if (lane(queue) == lane(step.queue)) step.queue = queue;
    return "another queue";
  }
  std::string shift_segment() {
    if (plan_.segments.empty()) return "nothing";
    Segment& segment = any(rng_, plan_.segments);
    (draw(rng_, 0, 1) == 0 ? segment.begin : segment.end) += draw(rng_, -2, 2);
    return "another segment";
  }
  std::string drop_copy() {
    Step& step = any(rng_, plan_.steps);
    if (step.what != Step::What::copy_in && step.what != Step::What::copy_out) return "nothing";
    step.what = Step::What::mark;
    return "a copy less";
  }

  Rng& rng_;
  const Program& program_;
  Plan& plan_;
};

/// Rules beyond what one execution can show: a wait that is useless, an order that only other ranks
/// see.
bool is_rule(const std::string& fault) {
  for (const char* words :
       {"may overtake", "may run beside", "records later", "lies only partly", "runs in section",
        "host address", "is recorded by", "the one before it ends at", "which outlives a step",
        "not among gradients", "in the bytes of homes", "is not back in its home",
        "but its home is the host", "is behind the join"})
    if (fault.find(words) != std::string::npos) return true;
  return false;
}

/// What the verifier has said of sound and of changed plans, where the oracle agreed.
struct Tally {
  int sound = 0;
  int rule = 0;      ///< changes that break a rule which the oracle does not know
  int broken = 0;    ///< others that change what a step computes
  int harmless = 0;  ///< and those that do not
  int windows = 0;   ///< of states that have their home on the host
  int carried = 0;   ///< write-backs of them, into the next execution
  Reused reused;
};

std::vector<std::string> judged(const RandomProgram& random, const Plan& plan) {
  const PlannedProgram planned{&random.program, &plan};
  return verify({&planned, 1});
}

/// Breaks copies of a sound plan, or not.
void judge_changed(Rng& rng, const RandomProgram& random, const Plan& plan, const Oracle& oracle,
                   Tally& tally) {
  constexpr int kChanges = 12;
  for (int i = 0; i < kChanges; ++i) {
    Plan mutated = plan;
    const std::string how = Mutator(rng, random.program, mutated).mutate();
    if (how == "nothing") continue;
    const std::vector<std::string> found = judged(random, mutated);
    // The verifier's checks of shape come first: the oracle takes them for granted.
    if (std::any_of(found.begin(), found.end(), is_rule)) {
      ++tally.rule;
      continue;
    }
    const std::string truth = oracle.judge(mutated);
    ASSERT_EQ(found.empty(), truth.empty())
        << "change " << i << " (" << how
        << ")\nverifier: " << (found.empty() ? "sound" : found.front()) << "\noracle: " << truth;
    ++(truth.empty() ? tally.harmless : tally.broken);
  }
}

void judge_one(std::uint64_t seed, Tally& tally) {
  const RandomProgram random(random_shape(seed));
  Rng rng(seed * 977);
  offload::PlannerOptions options = random_options(rng);
  if (seed % 3 == 0) options.rates.op_s = 1e-3;  // copies of states hide behind ops
  const bool reuses = seed % 4 == 0;
  const Plan plan = reuses ? plan_with_reuse(rng, options, random)
                           : offload::make_plan(random.program, random.layout, options);
  if (reuses) count_reuse(random, options, plan, tally.reused);
  tally.windows += static_cast<int>(std::ranges::count_if(plan.places, [&](const Place& place) {
    return place.region == Region::transient &&
           is_persistent(random.program.info(place.tensor).lifetime);
  }));
  tally.carried += static_cast<int>(plan.steps.size()) - first_carried(plan);
  const std::vector<std::string> faults = judged(random, plan);
  ASSERT_TRUE(faults.empty()) << faults.front();
  const Oracle oracle(random.program);
  ASSERT_EQ(oracle.judge(plan), "");
  ++tally.sound;
  judge_changed(rng, random, plan, oracle, tally);
}

/// A state with its home on the host, which one op updates in a window that nothing else uses.
struct OneState {
  Program program{"one_state"};
  PersistentLayout layout;

  OneState() {
    const TensorInfo state = one_buffer("state", Dtype::fp32, {100}, Lifetime::optimizer_state);
    layout.open_bucket("states", "", Dtype::fp32, {}, Region::host);
    layout.add(state);
    layout.close();
    Op op;
    op.name = "update";
    op.launch = [](Queue&, std::span<const View>) {};
    program.begin_section("epilogue");
    op.uses = {{program.add(state), Access::update}};
    program.append(std::move(op));
    program.finish();
  }
};

/// Such a window holds nothing in the first execution, which is not what a state begins with. In
/// the second it still holds what the first left there, which is right.
TEST(property, a_window_that_no_copy_fills_is_found_by_both_judges) {
  const OneState one;
  Plan plan = offload::make_plan(one.program, one.layout, {});
  const PlannedProgram planned{&one.program, &plan};
  const Oracle oracle(one.program);
  EXPECT_EQ(verify({&planned, 1}), std::vector<std::string>{});
  EXPECT_EQ(oracle.judge(plan), "");
  const auto load = std::ranges::find(plan.steps, Step::What::copy_in, &Step::what);
  ASSERT_NE(load, plan.steps.end());
  load->what = Step::What::mark;
  EXPECT_EQ(verify({&planned, 1}), std::vector<std::string>{"update reads state before its write"});
  EXPECT_EQ(oracle.judge(plan), "update finds another value of state");
}

/// As many seeds as there are rounds, from the test's seed on: STOWAGE_TEST_SEED=4463 and
/// STOWAGE_FUZZ_ROUNDS=1 repeat seed 4463 alone.
TEST(property, sound_plans_pass_and_mutated_ones_are_judged_as_the_oracle_does) {
  const std::uint64_t first = stowage::ctest::seed();
  const int plans = stowage::ctest::fuzz_rounds();
  Tally tally;
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(plans); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_NO_FATAL_FAILURE(judge_one(seed, tally));
  }
  std::cout << "seeds " << first << " to " << first + static_cast<std::uint64_t>(plans) - 1 << ": "
            << tally.sound << " plans verified, " << tally.carried << " write-backs carried; of "
            << tally.rule + tally.broken + tally.harmless << " changes "
            << tally.rule + tally.broken << " are errors, all caught (" << tally.rule
            << " break a rule), 0 escaped; " << tally.harmless << " are harmless, 0 refused\n";
  EXPECT_EQ(tally.sound, plans);
  EXPECT_GT(tally.broken, 2 * plans);
  EXPECT_GT(tally.harmless, plans);
  EXPECT_GT(tally.windows, plans);
  EXPECT_GT(tally.carried, plans / 10);
  EXPECT_GT(tally.reused.tenants, plans / 4);
  EXPECT_GT(tally.reused.with_reruns, plans / 40);
  EXPECT_GT(tally.reused.with_copies, plans / 40);
  EXPECT_GT(tally.reused.left_in_time, 0);
}

}  // namespace
}  // namespace stowage::ctest
