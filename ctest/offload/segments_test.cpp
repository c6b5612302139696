#include "offload/segments.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "execution/plan_shape.hpp"
#include "execution/verifier.hpp"
#include "random_run.hpp"

namespace stowage::ctest {
namespace {

using Mode = offload::GraphOptions::Mode;
using Copies = offload::GraphOptions::Copies;
using Bytes = std::vector<std::byte>;
using Outcome = RandomOutcome;

class segments : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_test_backend()) GTEST_SKIP() << "no GPU";
  }
};

const std::vector<std::vector<std::string>> kScopes = {
    {"layer"}, {"attn", "mamba", "mlp", "moe"}, {"moe_router"}, {"moe", "moe_router"}, {"mamba"}};

offload::PlannerOptions with(const offload::GraphOptions& graphs) {
  offload::PlannerOptions options;
  options.graphs = graphs;
  return options;
}

/// Everything that may leave does, even if it cannot come back in time.
offload::PlannerOptions offloading(const offload::GraphOptions& graphs,
                                   const std::vector<std::string>& recompute = {}) {
  offload::PlannerOptions options = with(graphs);
  options.policy.kind = offload::Policy::Kind::manual;
  for (const char* name : {"core_attn", "mamba_ssm", "mlp_act", "moe_act", "mlp_fc1", "mlp_norm"})
    options.policy.offload.push_back({name, {name}});
  for (const std::string& name : recompute) options.policy.recompute.push_back({name, {name}});
  options.policy.min_tensor_bytes = 0;
  options.policy.keep_exposed = false;
  return options;
}

/// Every way to cut a step into graphs.
std::vector<offload::GraphOptions> all_graphs() {
  std::vector<offload::GraphOptions> all{{.mode = Mode::step}};
  for (const auto& scopes : kScopes) {
    all.push_back({.mode = Mode::scopes, .scopes = scopes});
    all.push_back({.mode = Mode::scopes, .scopes = scopes, .delay_until_graph = true});
    all.push_back({.mode = Mode::scopes, .scopes = scopes, .copies = Copies::overlapping});
  }
  return all;
}

int count(const Plan& plan, Step::What what) {
  int sum = 0;
  for_each_issued(plan, 1 << 20, [&](int step, int, int) { sum += plan.steps[step].what == what; });
  return sum;
}

Plan plan_of(const RandomProgram& random, const offload::GraphOptions& graphs) {
  return offload::make_plan(random.program, random.layout, with(graphs));
}

Outcome run(const RandomShape& shape, const offload::GraphOptions& graphs, int steps = 3,
            const HostOptions& host = {}, const ExecutorOptions& how = {}) {
  return run_random(shape, with(graphs), steps, host, how);
}

TEST_F(segments, plans_with_graphs_are_proven) {
  for (const int microbatches : {1, 2, 3, 5})
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      const RandomProgram random({.seed = seed, .microbatches = microbatches});
      for (const offload::GraphOptions& graphs : all_graphs())
        for (const bool offload : {false, true}) {
          const Plan plan =
              offload::make_plan(random.program, random.layout,
                                 offload ? offloading(graphs, {"mlp_act"}) : with(graphs));
          const PlannedProgram planned{&random.program, &plan};
          const auto faults = verify({&planned, 1});
          ASSERT_TRUE(faults.empty()) << "seed " << seed << ": " << faults.front();
        }
    }
}

TEST_F(segments, graphs_change_no_bit) {
  for (const int microbatches : {1, 2, 4})
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const RandomShape shape{.seed = seed, .microbatches = microbatches};
      const Bytes expected = run(shape, {}).state;
      for (const offload::GraphOptions& graphs : all_graphs())
        EXPECT_EQ(run(shape, graphs).state, expected) << "seed " << seed;
    }
}

TEST_F(segments, offload_and_recompute_in_graphs_change_no_bit) {
  for (const int microbatches : {1, 4})
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const RandomShape shape{.seed = seed, .microbatches = microbatches};
      const std::vector<std::string> recompute =
          seed % 2 == 0 ? std::vector<std::string>{} : std::vector<std::string>{"mlp_fc1"};
      const Bytes expected = run(shape, {}).state;
      const Outcome eager = run_random(shape, offloading({}, recompute));
      EXPECT_EQ(eager.state, expected) << "seed " << seed;
      EXPECT_EQ(eager.counters.copies_out, 3 * count(eager.plan, Step::What::copy_out));
      EXPECT_EQ(eager.counters.reruns, 3 * count(eager.plan, Step::What::rerun));
      EXPECT_GT(eager.counters.copies_out, 0);
      EXPECT_EQ(eager.counters.reruns > 0, seed % 2 == 1);
      for (const offload::GraphOptions& graphs : all_graphs()) {
        const Outcome graphed = run_random(shape, offloading(graphs, recompute));
        EXPECT_EQ(graphed.state, expected) << "seed " << seed;
        ExecutorCounters counters = graphed.counters;
        counters.launches = 0;
        EXPECT_EQ(counters, eager.counters);
      }
    }
}

TEST_F(segments, random_delays_change_no_bit) {
  const RandomShape shape{.seed = 9, .microbatches = 3};
  const Bytes expected = run(shape, {}).state;
  for (const std::uint64_t seed : {1U, 2U}) {
    const HostOptions host{.delay_seed = seed, .max_delay_s = 100e-6};
    EXPECT_EQ(run(shape, {.mode = Mode::step}, 3, host).state, expected);
    for (const offload::GraphOptions& graphs : all_graphs())
      EXPECT_EQ(run_random(shape, offloading(graphs), 3, host).state, expected);
  }
}

TEST_F(segments, states_on_the_host_change_no_bit) {
  for (const int microbatches : {1, 4})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      RandomShape shape{.seed = seed,
                        .microbatches = microbatches,
                        .states_on_host = false,
                        .buckets = seed % 4 == 0};
      const Bytes expected = run(shape, {}).state;
      shape.states_on_host = true;
      shape.weights_on_host = seed % 2 == 0;
      const Outcome eager = run(shape, {});
      EXPECT_EQ(eager.state, expected) << "seed " << seed;
      EXPECT_EQ(eager.counters.copies_in, 3 * count(eager.plan, Step::What::copy_in));
      EXPECT_GE(eager.counters.copies_out, 3 * shape.layers);
      const HostOptions host{.delay_seed = seed, .max_delay_s = 50e-6};
      for (const offload::GraphOptions& graphs : all_graphs())
        EXPECT_EQ(run_random(shape, offloading(graphs), 3, host).state, expected)
            << "seed " << seed;
    }
}

TEST_F(segments, carried_write_backs_change_no_bit) {
  int carried = 0;
  for (const int microbatches : {1, 4})
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      RandomShape shape{.seed = seed, .microbatches = microbatches, .states_on_host = false};
      const Bytes expected = run(shape, {}).state;
      shape.states_on_host = true;
      const HostOptions host{.delay_seed = seed, .max_delay_s = 50e-6};
      std::vector<offload::GraphOptions> graphs = all_graphs();
      graphs.emplace_back();  // none
      for (const offload::GraphOptions& some : graphs) {
        offload::PlannerOptions options = with(some);
        options.rates.op_s = 1e-3;  // copies end beside the next step's first op
        const Outcome outcome = run_random(shape, options, 3, host);
        carried += static_cast<int>(outcome.plan.steps.size()) - first_carried(outcome.plan);
        EXPECT_EQ(outcome.state, expected) << "seed " << seed;
      }
    }
  EXPECT_GT(carried, 0);
}

TEST_F(segments, a_step_without_loops_is_one_graph) {
  const Outcome one = run({.microbatches = 1}, {.mode = Mode::step}, 4);
  EXPECT_EQ(one.plan.segments.size(), 1U);
  EXPECT_EQ(one.counters.launches, 4);
}

TEST_F(segments, the_body_of_a_step_is_one_graph_for_all_its_periods) {
  const Outcome many = run({.microbatches = 7}, {.mode = Mode::step}, 2);
  EXPECT_EQ(many.plan.segments.size(), 3U);  // with prologue and first, body, last and epilogue
  EXPECT_EQ(many.counters.launches, 2 * (1 + 5 + 1));
}

TEST_F(segments, counters_do_not_depend_on_graphs) {
  const RandomShape shape{.seed = 4, .microbatches = 5};
  const Outcome eager = run(shape, {});
  EXPECT_EQ(eager.counters.launches, 0);
  for (const offload::GraphOptions& graphs :
       {offload::GraphOptions{.mode = Mode::step},
        offload::GraphOptions{.mode = Mode::scopes, .scopes = {"layer"}}}) {
    const Outcome graphed = run(shape, graphs);
    ExecutorCounters counters = graphed.counters;
    EXPECT_GT(counters.launches, 0);
    counters.launches = 0;
    EXPECT_EQ(counters, eager.counters);
  }
}

TEST_F(segments, a_graph_has_a_node_for_every_op_and_every_tie_to_its_surroundings) {
  const Outcome step = run({.seed = 3, .microbatches = 1}, {.mode = Mode::step});
  const Segment& segment = step.plan.segments.front();
  const std::vector<int> recorder = recorders(step.plan);
  std::size_t nodes = 0;
  std::vector<char> noted(static_cast<std::size_t>(step.plan.events), 0);
  const auto inside = [&](int i) { return i >= segment.begin && i < segment.end; };
  for (int i = 0; i < static_cast<int>(step.plan.steps.size()); ++i) {
    const Step& s = step.plan.steps[i];
    if (inside(i)) nodes += step.random->launches(s);
    for (const int event : s.waits) {
      const int from = recorder[event];
      if (inside(i) && !inside(from)) ++nodes;
      if (!inside(i) && inside(from)) nodes += !std::exchange(noted[event], 1);
    }
  }
  EXPECT_EQ(step.nodes.front(), nodes);
}

TEST_F(segments, scopes_are_the_outermost_ones_selected) {
  const RandomProgram random({.seed = 2, .layers = 6});
  const auto graphs = [&](const std::vector<std::string>& scopes) {
    return plan_of(random, {.mode = Mode::scopes, .scopes = scopes}).segments.size();
  };
  EXPECT_EQ(graphs({"layer"}), 12U);
  EXPECT_EQ(graphs({"attn", "mamba", "mlp", "moe"}), 12U);
  EXPECT_EQ(graphs({"layer", "attn", "moe_router"}), 12U);
  EXPECT_EQ(graphs({"moe"}), graphs({"moe", "moe_router"}));
  std::size_t each = 0;
  for (const char* kind : {"attn", "mamba", "mlp", "moe"}) each += graphs({kind});
  EXPECT_EQ(each, 12U);
  EXPECT_EQ(graphs({}), 0U);
}

TEST_F(segments, a_collective_inside_its_scope_is_inside_the_graph) {
  const RandomShape shape{.seed = 6, .layers = 8};
  const RandomProgram random(shape);
  const Plan plan = plan_of(random, {.mode = Mode::scopes, .scopes = {"layer"}});
  int inside = 0, outside = 0;  // of graphs
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (plan.queues[plan.steps[i].queue].lane != Lane::comm) continue;
    const std::string name = describe(random.program, plan.steps[i]);
    const bool captured =
        std::any_of(plan.segments.begin(), plan.segments.end(), [&](const auto& s) {
          return static_cast<int>(i) >= s.begin && static_cast<int>(i) < s.end;
        });
    EXPECT_EQ(captured, name.starts_with("exchange")) << name;
    ++(captured ? inside : outside);
  }
  EXPECT_GT(inside, 0);
  EXPECT_GT(outside, 0);
}

TEST_F(segments, a_collective_that_ends_its_scope_is_inside_the_graph) {
  Program program("ends");
  program.begin_section("only");
  const Tensor x = program.scratch("x", Dtype::fp32, {64}),
               y = program.output("y", Dtype::fp32, {64});
  const auto append = [&](std::string name, Lane lane, std::vector<Use> uses) {
    Op op;
    op.name = std::move(name);
    op.lane = lane;
    op.uses = std::move(uses);
    op.launch = [](Queue&, std::span<const View>) {};
    program.append(std::move(op));
  };
  {
    const auto scope = program.enter("layer", 0, 0);
    append("makes", Lane::compute, {{x, Access::write}});
    append("sums", Lane::comm, {{x, Access::update}});
  }
  append("reads", Lane::compute, {{x, Access::read}, {y, Access::write}});
  program.finish();
  const Plan plan =
      offload::make_plan(program, {}, with({.mode = Mode::scopes, .scopes = {"layer"}}));
  ASSERT_EQ(plan.segments.size(), 1U);
  const auto sums = std::ranges::find_if(plan.steps, [&](const Step& step) {
    return step.op >= 0 && describe(program, step) == "sums";
  });
  EXPECT_LT(sums - plan.steps.begin(), plan.segments[0].end);
}

TEST_F(segments, graphs_with_a_tail_take_turns_on_the_replay_queues) {
  const RandomProgram random({.seed = 6, .layers = 8});
  const Plan plan =
      plan_of(random, {.mode = Mode::scopes, .scopes = {"layer"}, .replay_queues = 2});
  int last = 0, tails = 0;
  for (const Segment& segment : plan.segments) {
    if (segment.queue == 0) continue;
    EXPECT_NE(segment.queue, last);
    last = segment.queue;
    ++tails;
  }
  EXPECT_GT(tails, 2);
}

bool share_bytes(const Plan& plan, const Step& a, const Step& b) {
  for (const int i : a.places)
    for (const int j : b.places) {
      const Place& p = plan.places[i];
      const Place& q = plan.places[j];
      if (p.region == q.region && p.offset < q.end() && q.offset < p.end()) return true;
    }
  return false;
}

TEST_F(segments, a_graph_does_not_wait_for_the_copy_tail_of_the_one_before) {
  const RandomProgram random({.seed = 6, .layers = 8});
  offload::PlannerOptions options = offloading({.mode = Mode::scopes, .scopes = {"layer"}});
  options.rates.copy_latency_s = 0;  // else all of these small copies are waited for
  const Plan plan = offload::make_plan(random.program, random.layout, options);
  const std::vector<int> recorder = recorders(plan);
  const auto step = [&](int i) -> const Step& { return plan.steps[i]; };
  int tails = 0, free = 0;  // graphs of forward that copy, and that do not wait for such ones
  for (std::size_t g = 1; g < 8; ++g) {
    const Segment& before = plan.segments[g - 1];
    const Segment& graph = plan.segments[g];
    bool waits = false;
    for (int i = before.begin; i < before.end; ++i) tails += step(i).what == Step::What::copy_out;
    for (int i = graph.begin; i < graph.end; ++i)
      for (const int event : step(i).waits) {
        const int from = recorder[event];
        const Step& source = step(from);
        if (from < before.begin || from >= before.end || source.what != Step::What::copy_out ||
            step(i).what == Step::What::copy_out)
          continue;
        // Only what overwrites the bytes that are being copied has to wait.
        EXPECT_TRUE(share_bytes(plan, source, step(i))) << describe(random.program, step(i));
        waits = true;
      }
    EXPECT_NE(graph.queue, before.queue);
    free += !waits;
  }
  EXPECT_GT(tails, 8);
  EXPECT_GT(free, 0);
}

TEST_F(segments, delayed_copies_are_issued_after_the_next_launch) {
  const RandomProgram random({.seed = 6, .layers = 8});
  const auto plan = [&](bool delay) {
    return offload::make_plan(
        random.program, random.layout,
        offloading({.mode = Mode::scopes, .scopes = {"layer"}, .delay_until_graph = delay}));
  };
  const auto outside = [](const Plan& p) {
    int sum = 0;
    for (int i = 0; i < static_cast<int>(p.steps.size()); ++i)
      sum += p.steps[i].what == Step::What::copy_out &&
             std::none_of(p.segments.begin(), p.segments.end(),
                          [&](const Segment& s) { return i >= s.begin && i < s.end; });
    return sum;
  };
  const Plan delayed = plan(true);
  EXPECT_EQ(outside(plan(false)), 0);
  EXPECT_EQ(outside(delayed), count(delayed, Step::What::copy_out));
  // The first graph's copies come right behind the second graph.
  const Step& first = delayed.steps[delayed.segments[1].end];
  EXPECT_EQ(first.what, Step::What::copy_out);
}

/// Ops of some layers are in no graph: two of these lie between the third and the fourth one.
struct SomeGraphs {
  RandomProgram random{{.seed = 6, .layers = 8, .communicates = false}};
  Plan plan;

  explicit SomeGraphs(bool delay)
      : plan(offload::make_plan(
            random.program, random.layout,
            offloading(
                {.mode = Mode::scopes, .scopes = {"attn", "mlp"}, .delay_until_graph = delay}))) {}
};

TEST_F(segments, copies_for_ops_behind_a_graph_are_behind_it) {
  const SomeGraphs some(false);
  const std::vector<Step>& steps = some.plan.steps;
  EXPECT_GT(count(some.plan, Step::What::copy_in), 8);
  for (const Segment& graph : some.plan.segments) {
    int last = graph.end - 1;
    while (steps[last].what == Step::What::mark) --last;
    EXPECT_NE(steps[last].what, Step::What::copy_in) << graph.name;
  }
}

TEST_F(segments, ops_between_graphs_do_not_end_a_delay) {
  const SomeGraphs some(true);
  const std::vector<Segment>& graphs = some.plan.segments;
  std::ptrdiff_t delayed = 0;  // copies of what the third one makes, behind the fourth one
  for (int i = graphs[3].end; i < graphs[4].begin; ++i)
    if (const Step& copy = some.plan.steps[i]; copy.what == Step::What::copy_out)
      for (int made = graphs[2].begin; made < graphs[2].end; ++made)
        delayed += std::ranges::count(some.plan.steps[made].places, copy.places[0]);
  EXPECT_GT(delayed, 0);
}

TEST_F(segments, copies_overlapping_graphs_leave_them_on_one_queue) {
  // Nothing forks: no graph has a tail, none changes queues, and each copy still starts behind the
  // step that writes its bytes, not behind the whole graph.
  const RandomProgram random({.seed = 6, .layers = 8, .communicates = false});
  const Plan plan = offload::make_plan(
      random.program, random.layout,
      offloading({.mode = Mode::scopes, .scopes = {"layer"}, .copies = Copies::overlapping}));
  EXPECT_GT(count(plan, Step::What::copy_out), 8);
  EXPECT_GT(plan.segments.size(), 8U);
  int early = 0;
  for (const Segment& graph : plan.segments) {
    EXPECT_EQ(graph.queue, 0);
    for (int i = graph.begin; i < graph.end; ++i) {
      const Step& step = plan.steps[i];
      EXPECT_NE(step.what, Step::What::copy_out);
      EXPECT_NE(step.what, Step::What::copy_in);
      early += step.records >= 0 && i + 1 < graph.end;
    }
  }
  EXPECT_GT(early, 8);
}

TEST_F(segments, warm_up_steps_are_issued_op_by_op) {
  const RandomShape shape{.seed = 8, .microbatches = 3};
  const Bytes expected = run(shape, {}, 5).state;
  for (const offload::GraphOptions& graphs :
       {offload::GraphOptions{.mode = Mode::step},
        offload::GraphOptions{.mode = Mode::scopes, .scopes = {"layer"}}}) {
    const long each = run(shape, graphs, 1).counters.launches;
    const Outcome warm = run(shape, graphs, 5, {}, {.warmup_steps = 2});
    EXPECT_EQ(warm.state, expected);
    EXPECT_EQ(warm.counters.launches, 3 * each);
  }
}

}  // namespace
}  // namespace stowage::ctest
