// Steps that go wrong: what is done again from the same state leaves what it would have left.
#include "drivers/train/loop.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "drivers/common/options.hpp"
#include "execution/backend.hpp"
#include "layers/state.hpp"

namespace stowage::drivers {
namespace {

using Values = std::vector<std::byte>;

/// Tokens of another source that come out wrong while they are to.
class WrongTokens : public inputs::TokenSource {
 public:
  explicit WrongTokens(std::unique_ptr<inputs::TokenSource> right) : right_(std::move(right)) {}

  std::int64_t tokens() const override { return right_->tokens(); }
  std::span<const std::int64_t> document_offsets() const override {
    return right_->document_offsets();
  }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    right_->read(first, out);
    if (wrong) std::ranges::fill(out, 5);  // one token throughout: a gradient of one direction
  }
  std::string description() const override { return "wrong " + right_->description(); }
  std::vector<std::string> files() const override { return {}; }

  bool wrong = false;

 private:
  std::unique_ptr<inputs::TokenSource> right_;
};

/// A run of the tiny deck.
class TinyLoop {
 public:
  explicit TinyLoop(const std::vector<std::string>& overrides = {},
                    Loop::Bad bad = Loop::Bad::done_again)
      : deck_(inputs::Deck::load(STOWAGE_SOURCE "/ctest/drivers/tiny.toml", overrides)),
        backend_(execution::make_host_backend()),
        data_(open_data(deck_, {})) {
    auto source = std::make_unique<WrongTokens>(std::move(data_.source));
    tokens = source.get();
    const inputs::TokenRange range = inputs::split(*source, 0.05).train;
    const auto batch = deck_.get<std::int64_t>("train.global_batch_size");
    data_.train = std::make_unique<inputs::Loader>(
        *source, range,
        inputs::LoaderOptions{
            .sequences = {.seq_length = deck_.get<std::int64_t>("train.seq_length")},
            .micro_batch_size = 1,
            .global_batch_size = batch,
            .seed = 7});
    data_.source = std::move(source);
    layers::TrainerOptions options = trainer_options(deck_, batch, parallel::planned_ranks({}, 0));
    options.capacities = {data_.train->max_documents()};
    trainer_ = std::make_unique<layers::Trainer>(
        std::make_unique<layers::TrainerPlan>(std::move(options)), *backend_);
    loop_ = std::make_unique<Loop>(*trainer_, data_, schedule(deck_), 0.1, bad);
  }

  /// Issues the next step; the tokens that the loop reads meanwhile are right or wrong.
  void issue(bool wrong = false) {
    tokens->wrong = wrong;
    note(loop_->issue(next_++));
  }
  void drain(bool wrong = false) {
    tokens->wrong = wrong;
    note(loop_->drain());
  }
  void issue(int count) {
    for (int i = 0; i < count; ++i) issue(false);
  }

  /// All that is kept from step to step.
  std::vector<Values> state() {
    std::vector<Values> all;
    for (const execution::Bucket& bucket : trainer_->plan().layout().buckets())
      for (const std::string& name : bucket.tensors) {
        if (name.starts_with("grad")) continue;
        all.emplace_back(trainer_->plan().layout().info(name).bytes());
        trainer_->device().read(name, all.back());
      }
    return all;
  }
  /// Puts a value into the first element of a tensor of fp32. @return what was there
  float put(const std::string& name, float value) {
    float before = 0;
    trainer_->device().read(name, std::as_writable_bytes(std::span(&before, 1)));
    trainer_->device().write(name, std::as_bytes(std::span(&value, 1)));
    return before;
  }
  inputs::LoaderPosition position() const { return data_.train->position(); }

  std::vector<StepReport> reports;
  WrongTokens* tokens;

 private:
  void note(const std::optional<StepReport>& report) {
    if (report) reports.push_back(*report);
  }

  inputs::Deck deck_;
  std::unique_ptr<execution::Backend> backend_;
  Data data_;
  std::unique_ptr<layers::Trainer> trainer_;
  std::unique_ptr<Loop> loop_;
  std::int64_t next_ = 0;
};

const std::vector<std::string> kSpikes = {"optim.spike_factor=1.5"};

TEST(loop, good_steps_are_done_once) {
  TinyLoop once(kSpikes, Loop::Bad::skipped), again(kSpikes);
  for (TinyLoop* run : {&once, &again}) {
    run->issue(6);
    run->drain();
    for (const StepReport& report : run->reports) EXPECT_TRUE(report.ok && !report.first);
  }
  EXPECT_EQ(again.state(), once.state());
}

TEST(loop, a_transient_error_leaves_no_trace_and_is_told) {
  TinyLoop clean(kSpikes), struck(kSpikes);
  clean.issue(7);
  clean.drain();
  struck.issue(3);
  struck.issue(true);  // its step is under way when the one before is read
  struck.issue(3);
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
  clean.issue(4);
  clean.drain();
  struck.issue(3);
  struck.issue(true);
  struck.drain();
  EXPECT_TRUE(struck.reports.back().first);
  EXPECT_EQ(struck.state(), clean.state());
  EXPECT_EQ(struck.position(), clean.position());
}

TEST(loop, a_lasting_cause_is_skipped_and_told) {
  TinyLoop once(kSpikes, Loop::Bad::skipped), again(kSpikes);
  for (TinyLoop* run : {&once, &again}) {
    run->issue(3);
    run->drain();
    run->issue(true);
    run->drain(true);
    run->issue(2);
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
  run.issue(3);
  run.issue(true);
  run.issue(true);  // the one before is wrong again, this one is not
  run.issue(2);
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
    run.issue(2);
    run.drain();
    const auto before = run.state();
    const float kept = run.put("final_norm.weight", std::numeric_limits<float>::quiet_NaN());
    run.issue(2);
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
    run.issue(1);
    run.drain();
    EXPECT_TRUE(run.reports.back().ok);
  }
}

}  // namespace
}  // namespace stowage::drivers
