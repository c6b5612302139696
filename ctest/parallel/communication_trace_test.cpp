// What one rank's plan says to the others: calls in issue order, and the waits between groups.
#include "parallel/proof/communication_trace.hpp"

#include <gtest/gtest.h>

#include "ctest/parallel/hand_plan.hpp"
#include "execution/error.hpp"
#include "parallel/proof/trace_bytes.hpp"

namespace stowage::parallel {
namespace {

using Calls = std::vector<int>;
using Edges = std::vector<TracedEdge>;

const std::vector<int> kAll{0, 1};

TracedProgram trace(HandPlan& plan) {
  const execution::PlannedProgram planned = plan.planned();
  return trace_communication(0, {&planned, 1}).programs->front();
}

std::string failure(HandPlan& plan) {
  try {
    trace(plan);
  } catch (const execution::Error& error) {
    return error.what();
  }
  return {};
}

TEST(communication_trace, what_an_op_exchanges) {
  HandPlan plan("train", 1);
  plan.join({plan.call("norm", "data", {0, 2}, 1, {0})});
  const execution::PlannedProgram planned = plan.planned();
  const RankTrace rank = trace_communication(2, {&planned, 1});
  EXPECT_EQ(rank.rank, 2);
  EXPECT_EQ(rank.groups, (std::vector<TracedGroup>{{"data", {0, 2}}}));
  const TracedProgram expected{
      "train", {{"norm", 0, "all_reduce", 4096, execution::Dtype::fp32, "sum", {}}}, {0}, {}, {}};
  EXPECT_EQ(rank.programs->front(), expected);
  EXPECT_EQ(describe(expected.ops[0]), "all_reduce norm of 4096 x fp32 (sum)");
}

TEST(communication_trace, waits_between_groups_and_overlapping_calls) {
  HandPlan plan("train", 2);
  const int a = plan.call("a", "data", kAll, 1, {0});
  const int b = plan.call("b", "tensor", kAll, 2, {0, a});
  const int c = plan.call("c", "data", kAll, 1, {});
  plan.join({b, c});
  const TracedProgram traced = trace(plan);
  EXPECT_EQ(traced.calls, (Calls{0, 1, 2}));
  EXPECT_EQ(traced.edges, (Edges{{0, 1}}));
  EXPECT_EQ(traced.loose, (Calls{2}));
}

TEST(communication_trace, edges_that_follow_are_left_out) {
  HandPlan plan("train", 3);
  const int a = plan.call("a", "data", kAll, 1, {0});
  const int b = plan.call("b", "tensor", kAll, 2, {a});
  const int c = plan.call("c", "expert", kAll, 3, {a, b});
  const int d = plan.call("d", "expert", kAll, 3, {a, b});
  plan.join({d});
  const TracedProgram traced = trace(plan);
  EXPECT_EQ(traced.edges, (Edges{{0, 1}, {1, 2}}));
  EXPECT_EQ(traced.loose, Calls{});
  EXPECT_EQ(c + 1, d);
}

TEST(communication_trace, waits_through_compute) {
  HandPlan plan("train", 2);
  const int a = plan.call("a", "data", kAll, 1, {0});
  const int joined = plan.join({a});
  const int b = plan.call("b", "tensor", kAll, 2, {joined});
  plan.join({b});
  EXPECT_EQ(trace(plan).edges, (Edges{{0, 1}}));
}

TEST(communication_trace, repeated_sections_are_written_out) {
  HandPlan plan("train", 2, 3);
  const int a = plan.call("a", "data", kAll, 1, {0});
  const int b = plan.call("b", "tensor", kAll, 2, {a});
  plan.end_repeat();
  const int c = plan.call("c", "data", kAll, 1, {b});
  plan.join({b, c});
  const TracedProgram traced = trace(plan);
  EXPECT_EQ(traced.calls, (Calls{0, 1, 0, 1, 0, 1, 2}));
  EXPECT_EQ(traced.edges, (Edges{{0, 1}, {2, 3}, {4, 5}, {5, 6}}));
  EXPECT_EQ(traced.loose, (Calls{2, 4}));
}

TEST(communication_trace, reruns_communicate_too) {
  HandPlan plan("train", 1);
  const int a = plan.call("a", "data", kAll, 1, {0});
  plan.join({plan.again(a, 1, {})});
  EXPECT_EQ(trace(plan).calls, (Calls{0, 0}));
}

TEST(communication_trace, order_in_a_graph_is_that_of_its_captured_waits) {
  const auto in_graph = [](bool waits) {
    HandPlan plan("train", 1);
    const int a = plan.call("a", "data", kAll, 1, {0});
    const int fork = plan.join(waits ? std::vector{a} : std::vector<int>{});
    const int b = plan.call("b", "data", kAll, 1, {fork});
    plan.join({b});
    plan.graph(fork, b + 2);
    plan.join({a});
    return failure(plan);
  };
  EXPECT_EQ(in_graph(true), "");
  EXPECT_EQ(in_graph(false), "b of program train may overtake the call before it in its group");
}

TEST(communication_trace, an_edge_of_graphs_or_of_single_steps_counts) {
  // Steps one by one keep the order of queue 1; a graph does not join the queue that it captured.
  HandPlan plan("train", 1);
  const int fork = plan.join({});
  const int a = plan.call("a", "data", kAll, 1, {fork});
  const int join = plan.join({a});
  plan.graph(fork, join + 1);
  const int b = plan.call("b", "tensor", kAll, 1, {0});
  plan.join({b});
  const TracedProgram traced = trace(plan);
  EXPECT_EQ(traced.edges, (Edges{{0, 1}}));
  EXPECT_EQ(traced.loose, (Calls{1}));
}

TEST(communication_trace, what_is_behind_a_graph_stays_on_its_queue) {
  HandPlan plan("train", 1);
  const int fork = plan.join({});
  const int a = plan.call("a", "data", kAll, 1, {fork});
  plan.graph(a, a + 1, 1);
  const int b = plan.call("b", "tensor", kAll, 1, {fork});
  const int c = plan.call("c", "expert", kAll, 0, {});
  plan.join({a, b, c});
  EXPECT_EQ(trace(plan).edges, (Edges{{0, 1}, {0, 2}})) << "step by step, a is issued on queue 0";
}

TEST(communication_trace, a_program_stands_alone) {
  HandPlan early("train", 1);
  early.join({early.call("a", "data", kAll, 1, {})});
  EXPECT_EQ(failure(early),
            "a may start before program train does: it does not follow the plan's fork");
  HandPlan late("train", 1);
  late.call("a", "data", kAll, 1, {0});
  EXPECT_EQ(failure(late), "a may still run when program train has ended: its queue is not joined");
}

TEST(communication_trace, ranks_with_equal_programs_share_them) {
  std::vector<RankTrace> sent;
  std::vector<std::string> bytes;
  for (int rank = 0; rank < 3; ++rank) {
    HandPlan plan("train", 1);
    plan.join({plan.call(rank == 2 ? "b" : "a", "data", {rank, rank + 3}, 1, {0})});
    const execution::PlannedProgram planned = plan.planned();
    sent.push_back(trace_communication(rank, {&planned, 1}));
    bytes.push_back(to_bytes(sent.back()));
  }
  const std::vector<RankTrace> traces = from_bytes(bytes);
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    EXPECT_EQ(traces[rank].rank, sent[rank].rank);
    EXPECT_EQ(traces[rank].groups, sent[rank].groups);
    EXPECT_EQ(*traces[rank].programs, *sent[rank].programs);
  }
  EXPECT_EQ(traces[0].programs, traces[1].programs);
  EXPECT_NE(traces[0].programs, traces[2].programs);
  EXPECT_EQ(traces[1].groups.front().members, (std::vector<int>{1, 4}));
}

TEST(communication_trace, large_counts_come_back) {
  HandPlan plan("train", 1);
  plan.join({plan.call("a", "data", kAll, 1, {0})});
  const execution::PlannedProgram planned = plan.planned();
  RankTrace trace = trace_communication(0, {&planned, 1});
  std::vector<TracedProgram> programs = *trace.programs;
  programs.front().ops.front().count = std::int64_t{1} << 40;
  trace.programs = std::make_shared<const std::vector<TracedProgram>>(programs);
  EXPECT_EQ(*from_bytes(std::vector{to_bytes(trace)}).front().programs, programs);
}

TEST(communication_trace, broken_bytes_are_refused) {
  HandPlan plan("train", 1);
  plan.join({plan.call("a", "data", kAll, 1, {0})});
  const execution::PlannedProgram planned = plan.planned();
  const std::string bytes = to_bytes(trace_communication(0, {&planned, 1}));
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(from_bytes(std::vector{bytes.substr(0, length)}), execution::Error) << length;
  EXPECT_THROW(from_bytes(std::vector{bytes + "x"}), execution::Error);
}

}  // namespace
}  // namespace stowage::parallel
