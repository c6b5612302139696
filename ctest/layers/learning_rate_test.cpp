#include "layers/step/learning_rate.hpp"

#include <gtest/gtest.h>

namespace stowage::layers {
namespace {

TEST(learning_rate, warms_up_linearly_to_the_peak) {
  const LearningRate s{.lr = 2, .min_lr = 1, .warmup_steps = 4, .decay_steps = 20};
  EXPECT_DOUBLE_EQ(s.at(0), 0.5);
  EXPECT_DOUBLE_EQ(s.at(3), 2);
  EXPECT_DOUBLE_EQ(s.at(4), 2);
}

TEST(learning_rate, cosine_ends_at_the_least_rate) {
  const LearningRate s{.lr = 2, .min_lr = 1, .warmup_steps = 4, .decay_steps = 20};
  EXPECT_DOUBLE_EQ(s.at(12), 1.5);
  EXPECT_DOUBLE_EQ(s.at(20), 1);
  EXPECT_DOUBLE_EQ(s.at(1000), 1);
}

TEST(learning_rate, wsd_is_flat_and_then_falls_linearly) {
  const LearningRate s{.shape = LearningRate::Shape::wsd,
                       .lr = 2,
                       .min_lr = 0,
                       .warmup_steps = 2,
                       .decay_steps = 20,
                       .wsd_decay_steps = 10};
  EXPECT_DOUBLE_EQ(s.at(2), 2);
  EXPECT_DOUBLE_EQ(s.at(10), 2);
  EXPECT_DOUBLE_EQ(s.at(15), 1);
  EXPECT_DOUBLE_EQ(s.at(20), 0);
}

// A warm-up or a decay of no length behind it: the least rate begins at its step.
TEST(learning_rate, what_has_no_length_ends_where_it_begins) {
  LearningRate s{.lr = 2, .min_lr = 1, .warmup_steps = 4, .decay_steps = 4};
  EXPECT_DOUBLE_EQ(s.at(3), 2);
  EXPECT_DOUBLE_EQ(s.at(4), 1);
  EXPECT_DOUBLE_EQ(s.at(5), 1);
  s.shape = LearningRate::Shape::wsd;  // wsd_decay_steps is 0
  s.decay_steps = 8;
  EXPECT_DOUBLE_EQ(s.at(7), 2);
  EXPECT_DOUBLE_EQ(s.at(8), 1);
  EXPECT_DOUBLE_EQ(s.at(9), 1);
}

// Steps are counted from 0 here: the last of d steps is 1 / d above the least rate
// (docs/reference/deck.md).
TEST(learning_rate, the_last_step_of_a_decay_is_just_above_the_least_rate) {
  LearningRate s{.shape = LearningRate::Shape::wsd,
                 .lr = 2,
                 .min_lr = 1,
                 .decay_steps = 10,
                 .wsd_decay_steps = 4};
  EXPECT_DOUBLE_EQ(s.at(9), 1.25);
  s.wsd_decay_steps = 1;
  EXPECT_DOUBLE_EQ(s.at(9), 2);
  EXPECT_DOUBLE_EQ(s.at(10), 1);
}

TEST(learning_rate, constant_stays) {
  const LearningRate s{.shape = LearningRate::Shape::constant, .lr = 3};
  EXPECT_DOUBLE_EQ(s.at(0), 3);
  EXPECT_DOUBLE_EQ(s.at(1 << 20), 3);
}

}  // namespace
}  // namespace stowage::layers
