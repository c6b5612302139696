#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "execution/error.hpp"
#include "execution/verifier.hpp"
#include "offload/draft.hpp"
#include "offload/planner.hpp"
#include "offload/saved_tensors.hpp"
#include "offload/summary.hpp"

namespace stowage::ctest {
namespace {

using namespace execution;
using offload::Choice;
using offload::PlannerOptions;
using offload::Policy;
using offload::Reason;

constexpr std::int64_t kMiB = 1 << 20;

/// A step of layers that only has sizes and costs. Layer i saves "a" (1 MiB and a small buffer),
/// made from what came in, and "b" (2 MiB), made from "a"; the next layer starts from "b".
struct Sizes {
  Program program{"sizes"};
  PersistentLayout layout;

  explicit Sizes(int layers = 8, double op_s = 1e-3, int repeat = 1, int microbatches = 1) {
    program.begin_section("only", repeat);
    for (int m = 0; m < microbatches; ++m) record(layers, op_s, m, m == 0 ? "" : "m");
    program.begin_section("end");
    program.finish();
  }

 private:
  void record(int layers, double op_s, int microbatch, const std::string& suffix) {
    std::vector<Tensor> a, b;
    Tensor x;
    for (int i = 0; i < layers; ++i) {
      const auto scope = program.enter("layer", i, microbatch);
      const std::string at = std::to_string(i) + suffix;
      TensorInfo info{"a" + at,
                      {{"payload", Dtype::uint8, {kMiB}}, {"scales", Dtype::uint8, {64}}},
                      Lifetime::saved,
                      "alpha",
                      {}};
      a.push_back(program.add(info));
      b.push_back(program.saved("b" + at, Dtype::uint8, {2 * kMiB}, "beta"));
      append("make_a" + at, x ? std::vector<Tensor>{x} : std::vector<Tensor>{}, {a.back()}, op_s);
      append("make_b" + at, {a.back()}, {b.back()}, op_s);
      x = b.back();
    }
    for (int i = layers; i-- > 0;) {
      const auto scope = program.enter("layer", i, microbatch, true);
      const std::string at = std::to_string(i) + suffix;
      const auto layer = static_cast<std::size_t>(i);
      const Tensor d = program.scratch("d" + at, Dtype::uint8, {kMiB});
      append("backward" + at, {a[layer], b[layer]}, {d}, 2 * op_s);
    }
  }

  void append(std::string name, const std::vector<Tensor>& reads, std::vector<Tensor> writes,
              double time_s) {
    Op op;
    op.name = std::move(name);
    for (const Tensor tensor : reads) op.uses.push_back({tensor, Access::read});
    for (const Tensor tensor : writes) op.uses.push_back({tensor, Access::write});
    op.cost.flops = time_s;  // at one FLOP a second
    op.launch = [](Queue&, std::span<const View>) {};
    program.append(std::move(op));
  }
};

/// A machine on which a 1 MiB copy takes `mib_s`, and ops what they say.
offload::Rates machine(double mib_s) {
  offload::Rates rates;
  rates.flops_per_s = 1;
  rates.op_s = 0;
  rates.d2h_bytes_per_s = rates.h2d_bytes_per_s = static_cast<double>(kMiB) / mib_s;
  rates.duplex_bytes_per_s = 2 * rates.d2h_bytes_per_s;
  rates.copy_latency_s = 0;
  rates.d2h_slowdown = rates.h2d_slowdown = {};
  return rates;
}

PlannerOptions manual(std::vector<offload::ModuleName> names, double mib_s = 1e-4) {
  PlannerOptions options;
  options.policy.kind = Policy::Kind::manual;
  options.policy.offload = std::move(names);
  options.policy.min_tensor_bytes = 1000;
  options.policy.keep_exposed = false;
  options.rates = machine(mib_s);
  return options;
}

const offload::ModuleName kAlpha{"alpha", {"alpha"}};
const offload::ModuleName kBeta{"beta", {"beta"}};
const offload::ModuleName kBoth{"both", {"alpha", "beta"}};

struct Planned {
  Sizes sizes;
  Plan plan;
  Choice choice;

  explicit Planned(const PlannerOptions& options, Sizes made = Sizes()) : sizes(std::move(made)) {
    plan = offload::make_plan(sizes.program, sizes.layout, options, &choice);
    const PlannedProgram planned{&sizes.program, &plan};
    EXPECT_EQ(verify({&planned, 1}), std::vector<std::string>{});
  }

  Decision decision(const std::string& name) const {
    return plan.decisions[sizes.program.find(name).id];
  }
  Reason reason(const std::string& name) const {
    return choice.reasons[sizes.program.find(name).id];
  }
  long copies() const {
    return std::count_if(plan.steps.begin(), plan.steps.end(),
                         [](const Step& step) { return step.what == Step::What::copy_out; });
  }
  /// Names of the tensors that leave, in the order of their copies.
  std::string leaving() const {
    std::string names;
    for (const Step& step : plan.steps)
      if (step.what == Step::What::copy_out)
        names += sizes.program.info(plan.places[step.places[0]].tensor).name + " ";
    return names;
  }
};

TEST(policy, whole_tensors_of_each_name_from_the_earliest_never_above_the_fraction) {
  PlannerOptions options = manual({kAlpha, kBeta});
  options.policy.fraction = 0.5;
  EXPECT_EQ(Planned(options).leaving(), "a0 b0 a1 b1 a2 b2 a3 b3 ");
  options.policy.fraction = 0.49;
  EXPECT_EQ(Planned(options).leaving(), "a0 b0 a1 b1 a2 b2 ");
  options.policy.fraction = 0;
  EXPECT_EQ(Planned(options).leaving(), "");
  options.policy.fraction = 1;
  const Planned all(options);
  EXPECT_EQ(all.copies(), 16);
  EXPECT_EQ(all.reason("a3"), Reason::asked);
}

TEST(policy, an_alias_is_one_item_a_layer) {
  PlannerOptions options = manual({kBoth});
  // 24 MiB in all, 3 MiB an item: 11 MiB hold three.
  options.policy.fraction = 11.0 / 24.0;
  EXPECT_EQ(Planned(options).leaving(), "a0 b0 a1 b1 a2 b2 ");
}

TEST(policy, small_buffers_stay_and_small_tensors_with_them) {
  PlannerOptions options = manual({kAlpha, kBeta});
  options.policy.min_tensor_bytes = kMiB + 1;
  const Planned planned(options);
  EXPECT_EQ(planned.leaving(), "b0 b1 b2 b3 b4 b5 b6 b7 ");
  EXPECT_EQ(planned.reason("a0"), Reason::small);
  options.policy.min_tensor_bytes = 0;
  const Planned all(options);  // both buffers of "a" now
  EXPECT_EQ(all.copies(), 24);
}

TEST(policy, a_pipeline_rank_keeps_its_bytes_from_the_first_that_backward_needs) {
  PlannerOptions options = manual({kAlpha, kBeta});
  options.policy.keep_bytes = 4 * kMiB;
  const Planned planned(options);
  EXPECT_EQ(planned.reason("b7"), Reason::pipeline_delta);
  EXPECT_EQ(planned.reason("a7"), Reason::pipeline_delta);
  EXPECT_EQ(planned.decision("b7"), Decision::keep);
  EXPECT_EQ(planned.decision("b6"), Decision::offload);  // 3 MiB are kept, 2 more would be above
  EXPECT_EQ(planned.decision("a6"), Decision::offload);
}

TEST(policy, what_could_not_come_back_in_time_stays) {
  // A layer takes 4 ms both ways, its copies 2.4 ms each way: the last layers have no time.
  PlannerOptions options = manual({kAlpha, kBeta}, 0.8e-3);
  const Planned forced(options);
  EXPECT_GT(forced.plan.exposed_s, 0);
  options.policy.keep_exposed = true;
  const Planned overlapped(options);
  EXPECT_EQ(overlapped.decision("b7"), Decision::keep);
  EXPECT_EQ(overlapped.reason("b7"), Reason::exposed);
  EXPECT_EQ(overlapped.decision("a0"), Decision::offload);
  EXPECT_NEAR(overlapped.plan.exposed_s, 0, 1e-9);
}

TEST(policy, what_is_listed_as_one_item_stays_or_leaves_as_one) {
  // "b7" has no time to come back; "a7" would have, by itself.
  PlannerOptions options = manual({kAlpha, kBeta}, 0.8e-3);
  options.policy.keep_exposed = true;
  const Planned apart(options);
  options.policy.offload = {kBoth};
  const Planned joined(options);
  int split = 0;
  for (int i = 0; i < 8; ++i) {
    const std::string layer = std::to_string(i);
    EXPECT_EQ(joined.decision("a" + layer), joined.decision("b" + layer)) << layer;
    split += apart.decision("a" + layer) != apart.decision("b" + layer);
  }
  EXPECT_GT(split, 0);
  EXPECT_EQ(joined.decision("a0"), Decision::offload);
  EXPECT_NEAR(joined.plan.exposed_s, 0, 1e-9);
}

TEST(policy, small_copies_cost_their_latency) {
  PlannerOptions options = manual({kAlpha, kBeta}, 1e-5);
  const Planned quick(options);
  options.rates.copy_latency_s = 5e-3;
  const Planned slow(options);
  EXPECT_GE(slow.plan.time_s, 16 * 5e-3);
  EXPECT_LT(quick.plan.time_s, slow.plan.time_s / 2);
}

TEST(policy, a_plan_that_waits_anyway_gives_bytes_back_early) {
  // Copies take three times as long as all compute: backward waits for them all, whatever is done.
  const Planned kept(manual({}, 3e-3));
  const Planned slow(manual({kAlpha, kBeta}, 3e-3));
  const Planned fast(manual({kAlpha, kBeta}, 1e-5));
  EXPECT_GT(slow.plan.exposed_s, 0.05);
  EXPECT_LT(slow.plan.bytes[1], kept.plan.bytes[1] / 2);
  EXPECT_LT(fast.plan.bytes[1], kept.plan.bytes[1] / 2);
  // Both directions of 24 MiB at 3 ms each, and at most all compute beside them.
  EXPECT_GE(slow.plan.time_s, 2 * 24 * 3e-3);
  EXPECT_LE(slow.plan.time_s, 2 * 24 * 3e-3 + kept.plan.time_s);
}

TEST(policy, listed_twice_is_recomputed_and_what_cannot_be_is_offloaded) {
  PlannerOptions options = manual({kAlpha, kBeta});
  options.policy.recompute = {kAlpha, kBeta};
  const Planned planned(options);
  // "a0" is made from nothing, so all others could be made again from it, layer by layer; a chain
  // ends at its layer, but what is computed again is there for the next.
  EXPECT_EQ(planned.decision("b3"), Decision::recompute);
  EXPECT_EQ(planned.leaving(), "");
}

/// What layer 1 saves is made from scratch of layer 0, which is gone in backward.
TEST(policy, what_cannot_be_computed_again_is_refused_by_name) {
  Program program("layers");
  PersistentLayout layout;
  program.begin_section("only");
  const Tensor passed = program.scratch("passed", Dtype::uint8, {kMiB});
  const Tensor saved = program.saved("saved", Dtype::uint8, {kMiB}, "alpha");
  const auto append = [&](int layer, bool backward, std::vector<Use> uses) {
    const auto scope = program.enter("layer", layer, 0, backward);
    Op op;
    op.name = fmt::format("op{}", program.ops().size());
    op.uses = std::move(uses);
    op.launch = [](Queue&, std::span<const View>) {};
    program.append(std::move(op));
  };
  append(0, false, {{passed, Access::write}});
  append(1, false, {{passed, Access::read}, {saved, Access::write}});
  append(1, true, {{saved, Access::read}});
  program.finish();
  PlannerOptions options = manual({});
  options.policy.recompute = {kAlpha};
  try {
    offload::make_plan(program, layout, options);
    FAIL() << "computed again from nothing";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
    EXPECT_STREQ(error.what(),
                 "recompute.modules: alpha (saved) cannot be computed again from what is there in "
                 "backward; offload.modules may list it");
  }
  options.policy.offload = {kAlpha};
  EXPECT_NO_THROW(offload::make_plan(program, layout, options));
}

TEST(policy, host_memory_that_is_too_small_is_named) {
  PlannerOptions options = manual({kAlpha, kBeta});
  for (const std::int64_t budget : {20 * kMiB, 0 * kMiB}) {  // of the 24 MiB that leave
    options.policy.host_budget_bytes = budget;
    try {
      Planned planned(options);
      FAIL() << "24 MiB fit into " << budget;
    } catch (const Error& error) {
      const std::string said = error.what();
      EXPECT_EQ(error.exit(), Exit::usage);
      EXPECT_TRUE(said.starts_with(fmt::format(
          "offload.host_budget_bytes = {}: what is offloaded needs {} bytes (0.023 GiB) of pinned "
          "memory, {} bytes ({:.3f} GiB) more",
          budget, 24 * kMiB, 24 * kMiB - budget,
          static_cast<double>(24 * kMiB - budget) / static_cast<double>(1024 * kMiB))))
          << said;
    }
  }
}

PlannerOptions automatic(std::int64_t budget, double mib_s) {
  PlannerOptions options = manual({}, mib_s);
  options.policy.kind = Policy::Kind::automatic;
  options.policy.device_budget_bytes = budget;
  return options;
}

TEST(policy, without_a_budget_all_that_is_free_leaves) {
  const Planned fast(automatic(0, 1e-5));
  EXPECT_NEAR(fast.plan.exposed_s, 0, 1e-9);
  EXPECT_EQ(fast.decision("b5"), Decision::offload);
  const Planned slow(automatic(0, 1e-3));
  EXPECT_NEAR(slow.plan.exposed_s, 0, 1e-9);
  EXPECT_EQ(slow.decision("a0"), Decision::offload);
  EXPECT_EQ(slow.decision("b7"), Decision::keep);
  EXPECT_GT(slow.leaving().size(), 0U);
  EXPECT_LT(slow.leaving().size(), fast.leaving().size());
}

TEST(policy, microbatches_share_the_host_room) {
  PlannerOptions options = automatic(0, 1e-5);
  options.policy.host_budget_bytes = 12 * kMiB;  // half of what one microbatch could move
  const Planned one(options);
  const Planned two(options, Sizes(8, 1e-3, 1, 2));
  EXPECT_GT(one.copies(), 4);
  EXPECT_EQ(two.copies(), 2 * one.copies());
  for (const Planned* planned : {&one, &two})
    EXPECT_LE(planned->plan.bytes[static_cast<int>(Region::host)], 12 * kMiB);
  EXPECT_EQ(two.reason("b7m"), Reason::host_budget);
  EXPECT_EQ(two.reason("b7"), Reason::host_budget);
}

/// Small buffers take more of pinned memory than their bytes: the search goes on with less.
TEST(policy, any_host_budget_is_met) {
  for (std::int64_t budget = 0; budget < 24 * kMiB; budget += kMiB / 2) {
    PlannerOptions options = automatic(0, 1e-5);
    options.policy.min_tensor_bytes = 1;
    options.policy.host_budget_bytes = budget + 100;
    const Planned planned(options);
    EXPECT_LE(planned.plan.bytes[static_cast<int>(Region::host)], budget + 100);
    EXPECT_EQ(planned.copies() > 0, budget >= kMiB + 1024) << budget;
  }
}

TEST(policy, any_budget_that_can_be_met_is_met) {
  const Planned plain(manual({}));
  const auto all = static_cast<std::int64_t>(plain.plan.bytes[1]);
  double last_s = 0;
  for (std::int64_t budget = all; budget >= all / 3; budget -= all / 12) {
    const Planned planned(automatic(budget, 1e-3));
    EXPECT_LE(planned.plan.bytes[1], static_cast<std::size_t>(budget));
    EXPECT_GE(planned.plan.time_s, last_s * 0.98) << budget;  // less memory is never faster
    last_s = std::max(last_s, planned.plan.time_s);
  }
  const Planned enough(automatic(all, 1e-3));
  EXPECT_EQ(enough.leaving(), "");
  EXPECT_EQ(enough.reason("a0"), Reason::not_needed);
}

TEST(policy, no_other_decision_about_one_or_two_tensors_is_faster) {
  const Planned plain(manual({}));
  for (const double mib_s : {2e-4, 7e-4, 1e-3}) {
    const auto budget = plain.plan.bytes[1] / 2;
    const PlannerOptions options = automatic(static_cast<std::int64_t>(budget), mib_s);
    const Planned best(options);
    const offload::Drafts drafts(best.sizes.program, best.sizes.layout, options.policy,
                                 options.rates, options.alignment);
    const double best_s = drafts.make_within(best.choice.decisions, budget).time_s;
    EXPECT_EQ(drafts.make(best.choice.decisions).time_s, drafts.time_s(best.choice.decisions));
    struct Other {
      int tensor;
      Decision decision;
    };
    std::vector<Other> others;
    for (const offload::SavedTensor& saved : drafts.saved_tensors())
      for (const Decision other : {Decision::keep, Decision::offload, Decision::recompute})
        if (other != Decision::recompute || best.sizes.program.info(saved.tensor).name != "a0")
          others.push_back({saved.tensor.id, other});
    int tried = 0;
    for (const Other& one : others)
      for (const Other& two : others) {
        std::vector<Decision> decisions = best.choice.decisions;
        for (const Other& other : {one, two}) decisions[other.tensor] = other.decision;
        if (decisions == best.choice.decisions) continue;
        const offload::Draft draft = drafts.make_within(decisions, budget);
        EXPECT_TRUE(draft.peak > budget || draft.time_s > best_s * (1 - 1e-4))
            << best.sizes.program.tensors()[one.tensor].name << " and "
            << best.sizes.program.tensors()[two.tensor].name << ": " << draft.time_s
            << " s instead of " << best_s;
        ++tried;
      }
    EXPECT_GE(tried, 1000);
  }
}

TEST(policy, the_same_budget_gives_the_same_plan) {
  const Planned plain(manual({}));
  const PlannerOptions options =
      automatic(static_cast<std::int64_t>(plain.plan.bytes[1] / 2), 7e-4);
  const Planned one(options);
  const Planned two(options);
  EXPECT_TRUE(one.choice.decisions == two.choice.decisions);
  ASSERT_EQ(one.plan.places.size(), two.plan.places.size());
  for (std::size_t i = 0; i < one.plan.places.size(); ++i)
    EXPECT_EQ(one.plan.places[i].offset, two.plan.places[i].offset);
  ASSERT_EQ(one.plan.steps.size(), two.plan.steps.size());
  for (std::size_t i = 0; i < one.plan.steps.size(); ++i) {
    const execution::Step& a = one.plan.steps[i];
    const execution::Step& b = two.plan.steps[i];
    EXPECT_TRUE(a.what == b.what && a.op == b.op && a.queue == b.queue && a.places == b.places &&
                a.waits == b.waits && a.records == b.records)
        << "step " << i;
  }
}

TEST(policy, a_host_without_room_is_named_and_not_the_device) {
  const Planned plain(manual({}));
  PlannerOptions options = automatic(static_cast<std::int64_t>(plain.plan.bytes[1]) / 3, 1e-3);
  options.policy.host_budget_bytes = 0;
  try {
    Planned planned(options);
    FAIL() << "nothing may leave";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
    EXPECT_TRUE(std::string(error.what()).starts_with("offload.host_budget_bytes = 0"))
        << error.what();
  }
  options.policy.device_budget_bytes = 0;
  EXPECT_EQ(Planned(options).reason("a0"), Reason::host_budget);
}

TEST(policy, in_graphs_a_refusal_speaks_of_the_budget_that_was_given) {
  const Planned plain(manual({}));
  const auto all = static_cast<std::int64_t>(plain.plan.bytes[1]);
  const auto persistent = static_cast<std::int64_t>(plain.plan.bytes[0]);
  int refused = 0;
  for (std::int64_t budget = all; budget > 0 && refused < 3; budget -= all / 48) {
    PlannerOptions options = automatic(budget, 1e-3);
    options.graphs.mode = offload::GraphOptions::Mode::scopes;
    options.graphs.scopes = {"layer"};
    try {
      EXPECT_LE(Planned(options).plan.bytes[1], static_cast<std::size_t>(budget));
      EXPECT_EQ(refused, 0) << budget << " is met, and more was not";
    } catch (const Error& error) {
      ++refused;
      const std::string what = error.what();
      EXPECT_TRUE(what.find(std::to_string(budget)) != std::string::npos ||
                  what.find(std::to_string(budget - persistent)) != std::string::npos)
          << budget << ": " << what;
    }
  }
  EXPECT_EQ(refused, 3);
}

TEST(policy, a_budget_that_cannot_be_met_says_what_is_missing_and_what_is_left) {
  try {
    Planned planned(automatic(2 * kMiB, 1e-3));
    FAIL() << "2 MiB are enough";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.exit(), Exit::usage);
    EXPECT_NE(what.find("offload.device_budget_bytes"), std::string::npos) << what;
    EXPECT_NE(what.find("missing"), std::string::npos) << what;
    EXPECT_NE(what.find("beta"), std::string::npos) << what;
  }
}

TEST(policy, memory_and_steps_do_not_grow_with_the_number_of_periods) {
  const PlannerOptions options = manual({kAlpha, kBeta});
  const Planned one(options, Sizes(8, 1e-3, 2));
  const Planned many(options, Sizes(8, 1e-3, 50));
  EXPECT_EQ(one.plan.bytes[1], many.plan.bytes[1]);
  EXPECT_EQ(one.plan.bytes[2], many.plan.bytes[2]);
  EXPECT_EQ(one.plan.steps.size(), many.plan.steps.size());
  EXPECT_NEAR(many.plan.time_s, 25 * one.plan.time_s, 0.05 * many.plan.time_s);
}

TEST(policy, the_summary_counts_what_moves) {
  PlannerOptions options = manual({kBeta});
  const Planned planned(options);
  const auto prediction = offload::predict(planned.sizes.program, planned.plan, options.rates);
  const auto modules =
      offload::summarize(planned.sizes.program, planned.plan, planned.choice, prediction);
  ASSERT_EQ(modules.size(), 2U);
  EXPECT_EQ(modules[0].module, "alpha");
  EXPECT_EQ(modules[0].copies, 0);
  EXPECT_EQ(modules[1].copies, 8);
  EXPECT_EQ(modules[1].offloaded, 16U * kMiB);
  EXPECT_NEAR(modules[1].d2h_s, 16 * 1e-4, 1e-9);
  EXPECT_NEAR(modules[1].waited_s, planned.plan.exposed_s, 1e-9);
  EXPECT_GT(modules[1].waited_s, 0);
  EXPECT_EQ(modules[1].reasons, std::vector<Reason>{Reason::asked});
}

}  // namespace
}  // namespace stowage::ctest
