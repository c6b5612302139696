// What communication costs beside compute, from when ops ran.
#include "forecast/plan/exposure.hpp"

#include <gtest/gtest.h>

namespace stowage::forecast {
namespace {

using execution::Lane;
using execution::OpTimer;

/// A plan of one step on each queue, in this order.
execution::Plan plan_of(std::vector<execution::QueueInfo> queues) {
  execution::Plan plan;
  plan.queues = std::move(queues);
  for (int q = 0; q < static_cast<int>(plan.queues.size()); ++q) {
    execution::Step step;
    step.queue = q;
    plan.steps.push_back(step);
  }
  return plan;
}

const execution::Plan kPlan = plan_of({{"compute", Lane::compute},
                                       {"compute 1", Lane::compute},
                                       {"comm data", Lane::comm},
                                       {"comm tensor", Lane::comm},
                                       {"d2h", Lane::d2h}});

TEST(exposure, is_what_no_compute_overlaps) {
  // compute       [0 2]   [4 6]
  // compute 1        [3 5]
  // comm data      [1       5.5]      [8 9]
  // comm tensor      [2.5 3.5]  [5 7]
  // copies hide nothing
  const std::vector<OpTimer::Interval> intervals = {{0, 0, 0, 2},   {0, 1, 4, 6}, {1, 0, 3, 5},
                                                    {2, 0, 1, 5.5}, {2, 1, 8, 9}, {3, 0, 2.5, 3.5},
                                                    {3, 1, 5, 7},   {4, 0, 0, 20}};
  const auto found = communication_exposure(kPlan, intervals);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_DOUBLE_EQ(found.at("comm data").busy_s, 5.5);
  EXPECT_DOUBLE_EQ(found.at("comm data").exposed_s, 2);  // 2 to 3, 8 to 9
  EXPECT_DOUBLE_EQ(found.at("comm tensor").busy_s, 3);
  EXPECT_DOUBLE_EQ(found.at("comm tensor").exposed_s, 1.5);  // 2.5 to 3, 6 to 7
  EXPECT_DOUBLE_EQ(found.at(kAllGroups).busy_s, 7);          // 1 to 7, 8 to 9
  EXPECT_DOUBLE_EQ(found.at(kAllGroups).exposed_s, 3);       // 2 to 3, 6 to 7, 8 to 9
}

TEST(exposure, parts_of_a_step_add_up_to_it) {
  // compute       [0 2]   [4 6]
  // comm data      [1       5]          [9 10]
  // d2h                     [5.5  8.5]
  const std::vector<OpTimer::Interval> intervals = {
      {0, 0, 0, 2}, {0, 1, 4, 6}, {2, 0, 1, 5}, {2, 1, 9, 10}, {4, 0, 5.5, 8.5}};
  const StepParts parts = step_parts(kPlan, intervals);
  EXPECT_DOUBLE_EQ(parts.compute_s, 4);
  EXPECT_DOUBLE_EQ(parts.exposed_communication_s, 3);  // 2 to 4, 9 to 10
  EXPECT_DOUBLE_EQ(parts.exposed_copies_s, 2.5);       // 6 to 8.5
  EXPECT_DOUBLE_EQ(parts.idle_s, 0.5);                 // 8.5 to 9
  EXPECT_DOUBLE_EQ(parts.total_s(), 10);
}

TEST(exposure, a_prediction_counts_sections_as_often_as_they_run) {
  // The steps of compute, comm data and comm tensor; the last one repeats.
  execution::Plan plan = plan_of({{"compute", Lane::compute},
                                  {"comm data", Lane::comm},
                                  {"compute", Lane::compute},
                                  {"comm tensor", Lane::comm}});
  plan.sections = {{.begin = 0, .end = 2}, {.begin = 2, .end = 4, .repeat = 5}};
  const offload::Prediction prediction{
      .time_s = 40, .exposed_s = 0, .begin_s = {0, 1, 4, 5}, .end_s = {2, 4.5, 6, 8}};
  const auto found = predicted_exposure(plan, prediction);
  EXPECT_DOUBLE_EQ(found.at("comm data").busy_s, 3.5);
  EXPECT_DOUBLE_EQ(found.at("comm data").exposed_s, 2);     // 2 to 4
  EXPECT_DOUBLE_EQ(found.at("comm tensor").busy_s, 15);     // 5 times 5 to 8
  EXPECT_DOUBLE_EQ(found.at("comm tensor").exposed_s, 10);  // 6 to 8
  EXPECT_DOUBLE_EQ(found.at(kAllGroups).exposed_s, 12);
}

TEST(exposure, of_no_communication_is_none) {
  EXPECT_TRUE(communication_exposure(kPlan, {{0, 0, 0, 2}, {4, 0, 1, 3}}).empty());
}

}  // namespace
}  // namespace stowage::forecast
