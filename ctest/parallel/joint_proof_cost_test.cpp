// The joint proof of 64 ranks with 20 000 calls each, and what it costs (printed, not judged). On
// one core: traces of their own are read in 0.4 s and proved in 0.4 s, with a cycle in 0.9 s; equal
// ones in 0.1 s together; the trace of a plan with as many calls is made in 0.01 s and has 120 KB.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "ctest/parallel/hand_plan.hpp"
#include "ctest/parallel/joint_jobs.hpp"
#include "parallel/proof/joint_proof.hpp"
#include "parallel/proof/trace_bytes.hpp"

namespace stowage::parallel {
namespace {

/// Runs `f` and prints how long it took.
auto timed(const char* what, auto&& f) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = f();
  fmt::print("  {}: {:.2f} s\n", what,
             std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return result;
}

JobShape large_job() {
  JobShape shape;
  shape.grid = fit_grid(64, 4, 1, 1, 4);
  shape.programs = 1;
  shape.edges = 8000;
  shape.moves = 200;
  return shape;
}

/// Sends all traces and proves them, as rank 0 does.
std::vector<std::string> prove(const std::vector<RankTrace>& job) {
  std::vector<std::string> bytes;
  std::size_t calls = 0, largest = 0;
  for (const RankTrace& trace : job) {
    bytes.push_back(to_bytes(trace));
    calls += trace.programs->front().calls.size();
    largest = std::max(largest, bytes.back().size());
  }
  fmt::print("{} ranks, {} calls each, traces of at most {} KB\n", job.size(), calls / job.size(),
             largest / 1000);
  const std::vector<RankTrace> received = timed("read", [&] { return from_bytes(bytes); });
  return timed("proved", [&] { return prove_jointly(received); });
}

TEST(joint_proof_cost, ranks_with_programs_of_their_own) {
  Rng rng(1);
  JobShape shape = large_job();
  shape.events = 29'000;  // some are of one group only: a rank has fewer
  std::vector<RankTrace> job = random_job(rng, shape);
  EXPECT_EQ(prove(job), std::vector<std::string>{});
  // The last call of rank 63 before its first one: nearly all calls are in a cycle.
  auto changed = std::make_shared<std::vector<TracedProgram>>(*job.back().programs);
  TracedProgram& program = changed->front();
  program.edges.push_back({static_cast<int>(program.calls.size()) - 1, 0});
  job.back().programs = std::move(changed);
  const std::vector<std::string> faults = prove(job);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_NE(faults.front().find("rank 63 starts"), std::string::npos) << faults.front();
}

TEST(joint_proof_cost, ranks_with_equal_programs) {
  Rng rng(2);
  JobShape shape = large_job();
  shape.events = 20'000;
  shape.equal = true;
  shape.edges = shape.moves = 0;
  EXPECT_EQ(prove(random_job(rng, shape)), std::vector<std::string>{});
}

TEST(joint_proof_cost, trace_of_a_plan) {
  constexpr int kRepeat = 250, kCalls = 80;
  HandPlan plan("train", 4, kRepeat);
  int compute = 0;
  std::vector<int> last(5, 0);
  for (int call = 0; call < kCalls; ++call) {
    const int queue = 1 + call % 4;
    compute = plan.join({last[1 + (call + 2) % 4]});
    last[queue] = plan.call(fmt::format("layer{}/gather", call), fmt::format("group{}", queue),
                            {0, 1}, queue, {compute});
  }
  plan.end_repeat();
  plan.join(last);
  const execution::PlannedProgram planned = plan.planned();
  const RankTrace trace = timed("traced", [&] { return trace_communication(0, {&planned, 1}); });
  const TracedProgram& traced = trace.programs->front();
  EXPECT_EQ(traced.calls.size(), std::size_t{kRepeat} * kCalls);
  fmt::print("  {} calls, {} edges: {} KB\n", traced.calls.size(), traced.edges.size(),
             to_bytes(trace).size() / 1000);
}

}  // namespace
}  // namespace stowage::parallel
