// A step that must change nothing is told by its norm, and by what the host knows of those before.
#include "kernels/optimizer/guard.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ctest/kernels/operator_arrays.hpp"
#include "execution/error.hpp"

namespace stowage::kernels::test {
namespace {

constexpr SpikeRule kRule{.factor = 3, .window = 4, .most_in_a_row = 2};

/// What a run keeps of its steps: each one is guarded, and counted if it is good.
class Steps {
 public:
  explicit Steps(Dtype dtype = Dtype::fp64, const SpikeRule& rule = kRule)
      : dtype_(dtype), rule_(rule) {}

  /// Whether a step of this norm is good.
  bool step(double norm, const Attempt& attempt = {}, std::int32_t ok = 1) {
    const Array words(Dtype::int64, {2}), good(Dtype::int64, {1}), flag = int32_array({ok});
    words.as<std::int64_t>()[0] = attempt.good_steps;
    words.as<std::int64_t>()[1] = attempt.last;
    good.as<std::int64_t>()[0] = good_;
    const Array value(dtype_, {1}, Values{norm});
    const Array running(Dtype::fp64, {2}, running_);
    const bool spikes = rule_.factor > 0;
    run(GuardStep{rule_, dtype_, spikes}, {.attempt = words,
                                           .norm = value,
                                           .good_steps = good,
                                           .step_ok = flag,
                                           .running = spikes ? running : Array()});
    running_ = running.values();
    const bool is_good = flag.as<std::int32_t>()[0] == ok && ok != 0;
    good_ += is_good;
    return is_good;
  }
  double running() const { return running_[0]; }
  double in_a_row() const { return running_[1]; }
  std::int64_t good() const { return good_; }

 private:
  Dtype dtype_;
  SpikeRule rule_;
  Values running_ = {0, 0};
  std::int64_t good_ = 0;
};

TEST(guard, the_running_norm_is_a_mean_and_then_decays) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp64}) {
    Steps steps(dtype);
    double sum = 0;
    for (const double norm : {2.0, 3.0, 1.0, 4.0}) {
      EXPECT_TRUE(steps.step(norm));
      sum += norm;
      EXPECT_NEAR(steps.running(), sum / static_cast<double>(steps.good()), 1e-12);
    }
    EXPECT_TRUE(steps.step(6.5));
    EXPECT_NEAR(steps.running(), 2.5 + (6.5 - 2.5) / 4, 1e-12) << "the window has 4 steps";
  }
}

TEST(guard, a_spike_is_skipped_and_leaves_the_norm) {
  Steps steps;
  EXPECT_TRUE(steps.step(100)) << "the first norm is no spike";
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(steps.step(1));
  const double before = steps.running();
  EXPECT_FALSE(steps.step(3.1 * before));
  EXPECT_EQ(steps.running(), before);
  EXPECT_EQ(steps.in_a_row(), 1);
  EXPECT_TRUE(steps.step(2.9 * before));
  EXPECT_EQ(steps.in_a_row(), 0);
}

TEST(guard, spikes_in_a_row_end_with_a_step_that_is_taken) {
  Steps steps;
  EXPECT_TRUE(steps.step(1));
  EXPECT_FALSE(steps.step(10));
  EXPECT_FALSE(steps.step(11));
  EXPECT_TRUE(steps.step(12));
  EXPECT_EQ(steps.running(), 12) << "norms are what they have become";
  EXPECT_EQ(steps.in_a_row(), 0);
  EXPECT_FALSE(steps.step(40));
}

TEST(guard, an_attempt_that_is_not_the_last_is_not_counted) {
  Steps steps;
  EXPECT_TRUE(steps.step(1));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(steps.step(10, {.good_steps = 1, .last = 0}));
  EXPECT_EQ(steps.in_a_row(), 0);
  EXPECT_FALSE(steps.step(10, {.good_steps = 1, .last = 1}));
  EXPECT_EQ(steps.in_a_row(), 1);
}

TEST(guard, a_step_issued_before_its_host_knew_of_a_bad_one_changes_nothing) {
  for (const SpikeRule& rule : {kRule, SpikeRule{}}) {
    Steps steps(Dtype::fp32, rule);
    EXPECT_TRUE(steps.step(1, {.good_steps = 0, .last = 0}));
    EXPECT_FALSE(steps.step(1, {.good_steps = 2, .last = 0}));
    EXPECT_FALSE(steps.step(100, {.good_steps = 2, .last = 1}));
    EXPECT_EQ(steps.in_a_row(), 0) << "nobody knows what its norm would be";
    EXPECT_TRUE(steps.step(1, {.good_steps = 1, .last = 0}));
    EXPECT_TRUE(steps.step(1)) << "a host that does not care";
  }
}

TEST(guard, a_step_that_is_bad_already_stays_so) {
  Steps steps;
  EXPECT_TRUE(steps.step(1));
  EXPECT_FALSE(steps.step(std::numeric_limits<double>::quiet_NaN(), {}, 0));
  EXPECT_FALSE(steps.step(std::numeric_limits<double>::infinity(), {}, 0));
  EXPECT_EQ(steps.running(), 1);
  EXPECT_EQ(steps.in_a_row(), 0) << "it is no spike";
}

TEST(guard, what_ranks_were_told_stays) {
  Steps steps;
  EXPECT_TRUE(steps.step(1, {}, 3));
  EXPECT_TRUE(steps.step(1, {}, 2));
}

TEST(guard, wrong_operands_are_refused) {
  const Array words(Dtype::int64, {2}), good(Dtype::int64, {1}), ok = int32_array({1});
  const Array norm(Dtype::fp64, {1}), running(Dtype::fp64, {2});
  const auto guard = [&](const Array& attempt, const Array& of, const SpikeRule& rule) {
    run(GuardStep{rule, Dtype::fp64, true},
        {.attempt = attempt, .norm = of, .good_steps = good, .step_ok = ok, .running = running});
  };
  EXPECT_THROW(guard(good, norm, kRule), execution::Error);
  EXPECT_THROW(guard(words, ok, kRule), execution::Error);
  EXPECT_THROW(guard(words, norm, SpikeRule{}), execution::Error);
}

}  // namespace
}  // namespace stowage::kernels::test
