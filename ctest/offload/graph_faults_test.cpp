// Plans with graphs that are broken in one way each: the verifier names what is wrong.
#include <gtest/gtest.h>

#include <algorithm>

#include "execution/verifier.hpp"
#include "offload/planner.hpp"
#include "random_program.hpp"

namespace stowage::ctest {
namespace {

using Mode = offload::GraphOptions::Mode;

class graph_faults : public testing::Test {
 protected:
  graph_faults() { plan = make({.mode = Mode::scopes, .scopes = {"layer"}}); }

  Plan make(const offload::GraphOptions& graphs) {
    offload::PlannerOptions options;
    options.graphs = graphs;
    options.policy.kind = offload::Policy::Kind::manual;
    for (const char* name : {"core_attn", "mamba_ssm", "mlp_act", "moe_act", "mlp_norm"})
      options.policy.offload.push_back({name, {name}});
    options.policy.min_tensor_bytes = 0;
    options.policy.keep_exposed = false;
    return offload::make_plan(random.program, random.layout, options);
  }

  Step& step(int index) { return plan.steps[index]; }
  Lane lane(int index) { return plan.queues[step(index).queue].lane; }
  /// The first step that satisfies `is`, and of a graph if `segment` is given.
  template <class Is>
  int find(Is&& is, const Segment* segment = nullptr) {
    const int begin = segment != nullptr ? segment->begin : 0;
    const int end = segment != nullptr ? segment->end : static_cast<int>(plan.steps.size());
    for (int i = begin; i < end; ++i)
      if (is(i)) return i;
    ADD_FAILURE() << "no such step";
    return begin;
  }
  int find(Step::What what, const Segment* segment = nullptr) {
    return find([&](int i) { return step(i).what == what; }, segment);
  }
  /// The first graph that copies something to the host.
  Segment& copying() {
    return *std::find_if(plan.segments.begin(), plan.segments.end(), [&](const Segment& s) {
      return std::any_of(plan.steps.begin() + s.begin, plan.steps.begin() + s.end,
                         [](const Step& i) { return i.what == Step::What::copy_out; });
    });
  }
  bool in_graph(int index) const {
    return std::any_of(plan.segments.begin(), plan.segments.end(),
                       [&](const Segment& s) { return index >= s.begin && index < s.end; });
  }
  int recorder(int event) const { return recorders(plan)[event]; }

  /// Expects a fault that contains all of `words`.
  void expect_caught(std::initializer_list<const char*> words) {
    const PlannedProgram planned{&random.program, &plan};
    const std::vector<std::string> faults = verify({&planned, 1});
    ASSERT_FALSE(faults.empty());
    const bool named = std::any_of(faults.begin(), faults.end(), [&](const std::string& fault) {
      return std::all_of(words.begin(), words.end(),
                         [&](const char* word) { return fault.find(word) != std::string::npos; });
    });
    EXPECT_TRUE(named) << faults.front();
  }

  RandomProgram random{{.seed = 6, .layers = 6, .microbatches = 4}};
  Plan plan;
};

TEST_F(graph_faults, fork_that_is_not_joined) {
  step(copying().end - 1).waits.clear();
  expect_caught({"graph layer", "forked to queue d2h is not joined"});
}

TEST_F(graph_faults, work_behind_the_join) {
  // The join waits for the first copy of a graph; the last one comes after.
  const auto copies = [&](const Segment& s) {
    return std::count_if(plan.steps.begin() + s.begin, plan.steps.begin() + s.end,
                         [](const Step& i) { return i.what == Step::What::copy_out; });
  };
  const auto segment = std::find_if(plan.segments.begin(), plan.segments.end(),
                                    [&](const Segment& s) { return copies(s) > 1; });
  Step& first = step(find(Step::What::copy_out, &*segment));
  if (first.records < 0) first.records = plan.events++;
  for (int& event : step(segment->end - 1).waits)
    if (lane(recorder(event)) == Lane::d2h) event = first.records;
  expect_caught({"graph layer", "forked to queue d2h is not joined"});
}

TEST_F(graph_faults, step_that_is_not_forked) {
  step(find(Step::What::copy_out, &copying())).waits.clear();
  expect_caught({"copy to host is not forked from its graph", "queue d2h", "at the capture"});
}

TEST_F(graph_faults, fork_from_outside_the_graph) {
  // An event of the step before the graph does not bring a queue into the capture.
  Step& copy = step(find(Step::What::copy_out, &copying()));
  copy.waits = {plan.steps.front().records};
  expect_caught({"copy to host is not forked from its graph"});
}

TEST_F(graph_faults, copy_tail_without_its_external_event) {
  const int copy = find(Step::What::copy_in);
  const int out = find([&](int i) {
    return step(i).what == Step::What::copy_out && step(i).places[1] == step(copy).places[0];
  });
  const int event = step(out).records;
  for (Step& s : plan.steps)
    if (&s < &step(copying().begin) || &s >= &step(copying().end)) std::erase(s.waits, event);
  std::erase(step(copy).waits, event);
  for (int i = 0; i < static_cast<int>(plan.steps.size()); ++i)
    if (lane(i) == Lane::h2d) std::erase(step(i).waits, event);
  expect_caught({"edge"});
}

TEST_F(graph_faults, wait_for_a_record_that_is_launched_later) {
  const int reader = find([&](int i) {
    return in_graph(i) && std::any_of(step(i).waits.begin(), step(i).waits.end(), [&](int event) {
             return !in_graph(recorder(event)) && recorder(event) < i &&
                    lane(recorder(event)) == Lane::h2d;
           });
  });
  for (int& event : step(reader).waits)
    if (lane(recorder(event)) == Lane::h2d) event = plan.steps.back().records = plan.events++;
  expect_caught({"reads x without an edge", "is launched before the record"});
}

TEST_F(graph_faults, wait_for_what_the_same_graph_records_later) {
  const Segment& segment = copying();
  const int first = find([&](int i) { return step(i).what == Step::What::run; }, &segment);
  step(segment.end - 1).records = plan.events++;
  step(first).waits.push_back(step(segment.end - 1).records);
  expect_caught({"waits for event", "records later"});
}

TEST_F(graph_faults, event_of_two_steps) {
  const int a = find([&](int i) { return step(i).records >= 0; });
  const int b = find([&](int i) { return i > a && step(i).records < 0; });
  step(b).records = step(a).records;
  expect_caught({"is recorded by", "and by"});
}

TEST_F(graph_faults, input_copy_in_a_graph) {
  plan = make({.mode = Mode::step});
  plan.segments.front().begin = find([&](int i) { return lane(i) == Lane::h2d; });
  expect_caught({"stage/x is in graph", "host address changes from step to step"});
}

TEST_F(graph_faults, graph_across_a_section_that_repeats) {
  plan = make({.mode = Mode::step});
  plan.segments[0].end = ++plan.segments[1].begin;
  expect_caught({"lies only partly in a section that repeats"});
}

TEST_F(graph_faults, graphs_that_overlap) {
  plan.segments[1].begin = plan.segments[0].end - 1;
  expect_caught({"graph layer", "the one before it ends at"});
}

TEST_F(graph_faults, empty_graph) {
  plan.segments[0].end = plan.segments[0].begin;
  expect_caught({"graph layer", "has steps"});
}

TEST_F(graph_faults, graph_on_a_copy_queue) {
  plan.segments[0].queue = step(find(Step::What::copy_out)).queue;
  expect_caught({"launched on queue d2h", "no compute queue"});
}

TEST_F(graph_faults, replay_queue_that_is_not_joined) {
  const auto replay = std::find_if(plan.queues.begin(), plan.queues.end(),
                                   [](const QueueInfo& q) { return q.name == "replay1"; });
  const auto queue = static_cast<int>(replay - plan.queues.begin());
  int last = -1;
  for (int i = 0; i < static_cast<int>(plan.steps.size()); ++i)
    if (!in_graph(i) && step(i).queue == queue) last = i;
  std::erase(plan.steps.back().waits, step(last).records);
  expect_caught({"queue replay1 is not joined at the end of program random"});
}

TEST_F(graph_faults, graph_on_another_queue_than_its_neighbours_expect) {
  // Graphs on one queue are in order; moved to another one, this graph is not.
  const RandomProgram plain{{.seed = 6, .communicates = false}};
  offload::PlannerOptions options;
  options.graphs = {.mode = Mode::scopes, .scopes = {"layer"}};
  plan = offload::make_plan(plain.program, plain.layout, options);
  const PlannedProgram planned{&plain.program, &plan};
  ASSERT_TRUE(verify({&planned, 1}).empty());
  Segment& segment = plan.segments[2];
  segment.queue = static_cast<int>(plan.queues.size());
  plan.queues.push_back({"other", Lane::compute});
  for (int i = segment.begin; i < segment.end; ++i) step(i).queue = segment.queue;
  const std::vector<std::string> faults = verify({&planned, 1});
  ASSERT_FALSE(faults.empty());
  EXPECT_NE(faults.front().find("without an edge"), std::string::npos) << faults.front();
  EXPECT_TRUE(std::ranges::any_of(
      faults, [](const std::string& fault) { return fault.find("may run beside") != fault.npos; }));
}

TEST_F(graph_faults, collectives_that_may_overtake_each_other) {
  const int first = find([&](int i) { return lane(i) == Lane::comm && !in_graph(i); });
  const int second =
      find([&](int i) { return i > first && lane(i) == Lane::comm && !in_graph(i); });
  step(second).queue = static_cast<int>(plan.queues.size());
  plan.queues.push_back({"comm2", Lane::comm});
  expect_caught({"may overtake all_reduce", "in group data"});
}

}  // namespace
}  // namespace stowage::ctest
