// The verdict of a run follows from what its steps, evaluations and states were, and from the deck.
#include "run/judge/judge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace stowage::run {
namespace {

using results::Outcome;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inputs::Deck deck_of(std::vector<std::string> overrides = {}) {
  return inputs::Deck::parse("model.pattern = \"M-\"\ndata.source = \"synthetic\"\n", "judged.toml",
                             overrides);
}

StepReport step(std::int64_t number, double loss, double norm, bool ok = true) {
  StepReport report;
  report.step = number;
  report.loss = loss;
  report.grad_norm = norm;
  report.ok = ok;
  return report;
}

/// Thirty steps whose loss falls from 5.9 to 3, and two evaluations.
History good_run() {
  History history;
  for (std::int64_t i = 1; i <= 30; ++i)
    history.steps.push_back(step(i, 6 - 0.1 * static_cast<double>(i), 1));
  history.evaluations = {{15, 4.6, 0.1}, {30, 3.2, 0.2}};
  history.replayed = true;
  return history;
}

void skip(History& history, std::int64_t number) {
  history.steps[number - 1] = step(number, kNan, kNan, false);
}

Outcome outcome(const History& history, std::vector<std::string> overrides = {},
                bool complete = true) {
  return judge(deck_of(std::move(overrides)), history, complete).outcome();
}

/// Names of the checks that failed.
std::vector<std::string> failed(const results::Verdict& verdict) {
  std::vector<std::string> names;
  for (const results::Check& check : verdict.checks())
    if (!check.passed()) names.push_back(check.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(judge, a_good_run_is_valid) { EXPECT_EQ(outcome(good_run()), Outcome::valid); }

TEST(judge, one_skipped_step_is_no_failure) {
  for (const std::int64_t at : {1, 15, 30}) {
    History history = good_run();
    skip(history, at);
    EXPECT_EQ(outcome(history, {"validate.loss_below=3.2", "validate.grad_norm_below=2"}),
              Outcome::valid)
        << "step " << at;
    EXPECT_EQ(failed(judge(deck_of({"validate.most_skipped_steps=0"}), history, true)),
              Names{"skipped_steps"})
        << "step " << at;
  }
}

TEST(judge, more_skipped_steps_than_the_deck_allows_are_a_failure) {
  History history = good_run();
  for (const std::int64_t at : {3, 9, 27}) skip(history, at);
  EXPECT_EQ(failed(judge(deck_of(), history, true)), Names{"skipped_steps"});
  EXPECT_EQ(outcome(history, {"validate.most_skipped_steps=2"}), Outcome::invalid);
  EXPECT_EQ(outcome(history, {"validate.most_skipped_steps=3"}), Outcome::valid);
}

TEST(judge, a_run_that_changed_nothing_is_invalid) {
  History history;
  history.steps = {step(1, 4, 1, false)};
  EXPECT_EQ(failed(judge(deck_of(), history, true)), Names{"finite_loss"});
  history.steps.clear();
  EXPECT_EQ(failed(judge(deck_of(), history, true)), Names{"finite_loss"});
  history.all_before = true;  // another run's steps
  EXPECT_EQ(failed(judge(deck_of(), history, true)), Names{});
}

TEST(judge, what_was_skipped_counts_in_no_figure) {
  History history = good_run();
  history.steps[29] = step(30, 1.0, 1e9, false);  // finite, and would pass one and fail the other
  EXPECT_EQ(failed(judge(deck_of({"validate.loss_below=2", "validate.grad_norm_below=2"}), history,
                         true)),
            Names{"loss"});
  EXPECT_NEAR(tail_mean(history, &StepReport::loss), (3.1 + 3.2) / 2, 1e-12)
      << "a tenth of 29 steps";
  EXPECT_EQ(skipped_steps(history), 1);
}

TEST(judge, a_good_step_must_be_finite) {
  History history = good_run();
  history.steps.back().loss = kNan;
  EXPECT_EQ(failed(judge(deck_of(), history, true)), Names{"finite_loss"});
  history = good_run();
  history.evaluations.back().loss = std::numeric_limits<double>::infinity();
  EXPECT_EQ(failed(judge(deck_of(), history, true)), Names{"finite_val_loss"});
}

TEST(judge, norms_count_after_warm_up) {
  History history = good_run();
  history.steps[4].grad_norm = 50;
  EXPECT_EQ(outcome(history, {"validate.grad_norm_below=2", "optim.warmup_steps=5"}),
            Outcome::valid);
  EXPECT_EQ(
      failed(judge(deck_of({"validate.grad_norm_below=2", "optim.warmup_steps=4"}), history, true)),
      Names{"grad_norm"});
}

TEST(judge, states_that_differ_are_a_failure) {
  History history = good_run();
  history.replayed = false;
  EXPECT_EQ(failed(judge(deck_of(), history, true)), Names{"replayed_step"});
  history = good_run();
  history.copies = true;
  EXPECT_EQ(outcome(history), Outcome::valid);
  history.differing = 1;
  EXPECT_EQ(failed(judge(deck_of(), history, true)), Names{"copies_that_differ"});
}

TEST(judge, what_a_deck_asks_of_the_end_is_not_asked_of_a_stopped_run) {
  const Names asked = {"validate.loss_below=1", "validate.val_loss_below=1",
                       "expects.final_loss=[0.0, 1.0]"};
  EXPECT_EQ(failed(judge(deck_of(asked), good_run(), true)),
            (Names{"loss", "val_loss", "final_loss"}));
  EXPECT_EQ(outcome(good_run(), asked, false), Outcome::valid);
  EXPECT_EQ(outcome(good_run(), {"validate.val_loss_falling=true"}), Outcome::valid);
  History history = good_run();
  std::swap(history.evaluations[0].loss, history.evaluations[1].loss);
  EXPECT_EQ(failed(judge(deck_of({"validate.val_loss_falling=true"}), history, true)),
            Names{"val_loss_falling"});
  history.evaluations.clear();
  EXPECT_EQ(failed(judge(deck_of({"validate.val_loss_below=9"}), history, true)), Names{"val_loss"})
      << "a value that is missing";
}

TEST(judge, a_final_loss_is_that_of_the_last_step_that_was_not_skipped) {
  History history = good_run();
  skip(history, 30);
  const auto value = [&](const std::string& band) {
    const results::Verdict verdict = judge(deck_of({band}), history, true);
    const std::string name = band.substr(8, band.find('=') - 8);
    return std::ranges::find(verdict.checks(), name, &results::Check::name)->value;
  };
  EXPECT_DOUBLE_EQ(value("expects.final_loss=[0.0, 9.0]"), history.steps[28].loss);
  EXPECT_DOUBLE_EQ(value("expects.loss_at_29=[0.0, 9.0]"), history.steps[28].loss);
  EXPECT_TRUE(std::isnan(value("expects.loss_at_30=[0.0, 9.0]")));
}

TEST(judge, a_forced_load_is_told) {
  EXPECT_EQ(judge(deck_of(), good_run(), true).remark(), "");
  const inputs::Deck forced = deck_of({"model.moe_router_force_load=zipf"});
  EXPECT_EQ(judge(forced, good_run(), true).outcome(), Outcome::valid);
  for (const results::Verdict& verdict :
       {judge(forced, good_run(), true), judge_evaluation(forced, good_run())})
    EXPECT_EQ(verdict.remark(), "not official: model.moe_router_force_load is zipf");
}

TEST(judge, steps_behind_the_end_that_a_deck_asks_for_have_no_bands) {
  const Names bands = {"run.steps=30", "expects.loss_at_29=[0.0, 1e-9]",
                       "expects.loss_at_31=[0.0, 1e-9]"};
  EXPECT_EQ(failed(judge(deck_of(bands), good_run(), true)), Names{"loss_at_29"});
}

TEST(judge, an_evaluation_alone_is_judged_by_its_loss) {
  History history;
  history.evaluations = {{0, 4, 0.1}};
  EXPECT_EQ(judge_evaluation(deck_of(), history).outcome(), Outcome::valid);
  EXPECT_EQ(failed(judge_evaluation(deck_of({"validate.val_loss_below=3"}), history)),
            Names{"val_loss"});
  history.evaluations[0].loss = kNan;
  EXPECT_EQ(failed(judge_evaluation(deck_of(), history)), Names{"finite_val_loss"});
}

}  // namespace
}  // namespace stowage::run
