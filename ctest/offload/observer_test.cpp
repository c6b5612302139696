// Who looks on while a plan runs: every step once, in issue order, and the times of each.
#include "execution/observer.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "ctest/offload/toy_program.hpp"
#include "execution/executor.hpp"
#include "execution/op_timer.hpp"
#include "offload/planner.hpp"

namespace stowage::ctest {
namespace {

class Witness final : public Observer {
 public:
  void begin_step() override { ++begun; }
  void before(int index, Queue&) override {
    EXPECT_EQ(open, -1) << "inside of another step";
    open = index;
  }
  void after(int index, Queue&) override {
    EXPECT_EQ(open, index);
    open = -1;
    seen.push_back(index);
  }

  int begun = 0, open = -1;
  std::vector<int> seen;
};

class observer : public testing::Test {
 protected:
  void step() {
    const auto slot = executor.stage(toy.x);
    std::fill(slot.begin(), slot.end(), std::byte{0});
    executor.step();
  }

  Toy toy{5};
  std::unique_ptr<Backend> backend = make_host_backend({3, 50e-6});
  Plan plan = offload::make_plan(toy.program, toy.layout);
  Device device{*backend, toy.layout, plan.bytes[1], 0};
  Executor executor{toy.program, plan, device};

  std::vector<int> issued() const {
    std::vector<int> all;
    for_each_issued(plan, std::numeric_limits<int>::max(), [&](int index, int, int) {
      if (plan.steps[index].what != Step::What::mark) all.push_back(index);
    });
    return all;
  }
};

TEST_F(observer, sees_every_step_in_issue_order) {
  Witness witness;
  executor.add(witness);
  step();
  EXPECT_EQ(witness.seen, issued());
  step();
  EXPECT_EQ(witness.begun, 2);
  executor.remove(witness);
  step();
  EXPECT_EQ(witness.begun, 2);
  EXPECT_EQ(witness.seen.size(), 2 * issued().size());
}

TEST_F(observer, timer_gives_every_step_its_time) {
  OpTimer timer(*backend, plan);
  const std::uint64_t allocations = backend->allocations();
  executor.add(timer);
  for (int round = 0; round < 2; ++round) {
    const double before_s = steady_seconds();
    step();
    const auto intervals = timer.intervals();
    const double after_s = steady_seconds();
    ASSERT_EQ(intervals.size(), issued().size());
    std::vector<double> ends(plan.queues.size(), before_s);
    for (std::size_t i = 0; i < intervals.size(); ++i) {
      EXPECT_EQ(intervals[i].step, issued()[i]);
      const int queue = plan.steps[intervals[i].step].queue;
      double& last_s = ends[queue];
      EXPECT_LE(last_s, intervals[i].begin_s) << "two steps of one queue at once";
      EXPECT_LE(intervals[i].begin_s, intervals[i].end_s);
      EXPECT_LE(intervals[i].end_s, after_s);
      last_s = intervals[i].end_s;
    }
  }
  EXPECT_EQ(backend->allocations(), allocations);
  executor.remove(timer);
}

TEST_F(observer, steps_end_in_order) {
  step();
  step();
  EXPECT_LT(executor.end_time_s(1), executor.end_time_s(0));
  EXPECT_LE(executor.end_time_s(0), steady_seconds());
}

}  // namespace
}  // namespace stowage::ctest
