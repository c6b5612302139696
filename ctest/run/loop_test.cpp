// Steps that go wrong: what is done again from the same state leaves what it would have left.
#include <gtest/gtest.h>

#include <limits>

#include "tiny_loop.hpp"

namespace stowage::run {
namespace {

const std::vector<std::string> kSpikes = {"optim.spike_factor=1.5"};

TEST(loop, good_steps_are_done_once) {
  TinyLoop once(kSpikes, Loop::Bad::skipped), again(kSpikes);
  for (TinyLoop* run : {&once, &again}) {
    run->issue_right(6);
    run->drain();
    for (const StepReport& report : run->reports) EXPECT_TRUE(report.ok && !report.first);
  }
  EXPECT_EQ(again.state(), once.state());
}

// Every input asks for its slot of the ring, which is free; nothing of the state is read. So a copy
// of it that is issued between two steps keeps the host from nothing.
TEST(loop, a_step_behind_one_that_is_over_reads_nothing_of_the_state) {
  TinyLoop once(kSpikes, Loop::Bad::skipped), again(kSpikes);
  std::vector<std::uint64_t> waits;
  for (TinyLoop* run : {&once, &again}) {
    run->issue_right(2);
    run->drain();
    const std::uint64_t before = run->waits();
    run->issue_right(1);
    waits.push_back(run->waits() - before);
    run->drain();
  }
  EXPECT_EQ(waits[1], waits[0]);
}

TEST(loop, a_transient_error_leaves_no_trace_and_is_told) {
  TinyLoop clean(kSpikes), struck(kSpikes);
  clean.issue_right(7);
  clean.drain();
  struck.issue_right(3);
  struck.issue(true);  // its step is under way when the one before is read
  struck.issue_right(3);
  struck.drain();
  ASSERT_EQ(struck.reports.size(), 7U);
  for (std::size_t i = 0; i < 7; ++i) {
    const StepReport& report = struck.reports[i];
    EXPECT_TRUE(report.ok);
    EXPECT_EQ(report.step, static_cast<std::int64_t>(i + 1));
    EXPECT_EQ(report.loss, clean.reports[i].loss);
    EXPECT_EQ(report.grad_norm, clean.reports[i].grad_norm);
    EXPECT_EQ(report.first.has_value(), i == 3);
    EXPECT_EQ(report.disturbed, i == 3);
  }
  const FirstAttempt& first = *struck.reports[3].first;
  EXPECT_FALSE(first.same_bits);
  EXPECT_FALSE(first.same_own_loss);
  EXPECT_GT(first.grad_norm, 1.5 * clean.reports[3].grad_norm);
  EXPECT_EQ(struck.state(), clean.state());
  EXPECT_EQ(struck.position(), clean.position());
}

TEST(loop, the_last_step_is_done_again_too) {
  TinyLoop clean(kSpikes), struck(kSpikes);
  clean.issue_right(4);
  clean.drain();
  struck.issue_right(3);
  struck.issue(true);
  struck.drain();
  EXPECT_TRUE(struck.reports.back().first);
  EXPECT_EQ(struck.state(), clean.state());
  EXPECT_EQ(struck.position(), clean.position());
}

TEST(loop, a_lasting_cause_is_skipped_and_told) {
  TinyLoop once(kSpikes, Loop::Bad::skipped), again(kSpikes);
  for (TinyLoop* run : {&once, &again}) {
    run->issue_right(3);
    run->drain();
    run->issue(true);
    run->drain(true);
    run->issue_right(2);
    run->drain();
    EXPECT_FALSE(run->reports[3].ok);
    EXPECT_TRUE(run->reports[4].ok && run->reports[5].ok);
  }
  const StepReport& report = again.reports[3];
  ASSERT_TRUE(report.first);
  EXPECT_TRUE(report.first->same_bits && report.first->same_own_loss);
  EXPECT_EQ(report.first->grad_norm, report.grad_norm);
  EXPECT_FALSE(once.reports[3].first);
  EXPECT_EQ(again.state(), once.state()) << "a step done twice counts once";
}

TEST(loop, bad_steps_one_behind_the_other_are_told_apart) {
  TinyLoop run(kSpikes);
  run.issue_right(3);
  run.issue(true);
  run.issue(true);  // the one before is wrong again, this one is not
  run.issue_right(2);
  run.drain();
  ASSERT_EQ(run.reports.size(), 7U);
  ASSERT_TRUE(run.reports[3].first && run.reports[4].first);
  EXPECT_FALSE(run.reports[3].ok);
  EXPECT_TRUE(run.reports[3].first->same_bits);
  EXPECT_TRUE(run.reports[4].ok);
  EXPECT_FALSE(run.reports[4].first->same_bits);
  EXPECT_FALSE(run.reports[5].first || run.reports[6].first);
}

TEST(loop, a_gradient_that_is_not_finite_is_done_again) {
  for (const Loop::Bad bad : {Loop::Bad::skipped, Loop::Bad::done_again}) {
    TinyLoop run({}, bad);
    run.issue_right(2);
    run.drain();
    const auto before = run.state();
    const float kept = run.put("final_norm.weight", std::numeric_limits<float>::quiet_NaN());
    run.issue_right(2);
    run.drain();
    run.put("final_norm.weight", kept);
    EXPECT_EQ(run.state(), before);
    for (const std::size_t i : {2, 3}) {
      EXPECT_FALSE(run.reports[i].ok);
      EXPECT_EQ(run.reports[i].first.has_value(), bad == Loop::Bad::done_again);
    }
    if (run.reports[3].first) {
      EXPECT_TRUE(run.reports[3].first->same_bits);
    }
    run.issue_right(1);
    run.drain();
    EXPECT_TRUE(run.reports.back().ok);
  }
}

}  // namespace
}  // namespace stowage::run
