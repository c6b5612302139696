// An error on one rank: all ranks do the step again, and the loss tells which one it was.
#include <gtest/gtest.h>

#include "parallel/transport/connect.hpp"
#include "parallel/transport/host_transport.hpp"
#include "tiny_loop.hpp"

namespace stowage::run {
namespace {

const std::vector<std::string> kSpikes = {"optim.spike_factor=1.3", "validate.own_norms=true"};

class loop_ranks : public testing::Test {
 protected:
  TinyLoop run(const parallel::GridShape& shape) const {
    return TinyLoop(kSpikes, Loop::Bad::done_again,
                    parallel::connect(world_, shape, parallel::make_host_transport));
  }
  bool here(int rank) const { return world_.rank() == rank; }
  int last() const { return world_.size() - 1; }

  /// Trains seven steps; the tokens of the fourth are wrong on one rank, once.
  void strike(TinyLoop& loop, int rank) const {
    loop.issue_right(3);
    loop.issue(here(rank));
    loop.issue_right(3);
    loop.drain();
  }

  const parallel::Communicator world_ = parallel::Communicator::world();
};

TEST_F(loop_ranks, the_rank_of_a_transient_error_is_told) {
  const parallel::GridShape shape = parallel::fit_grid(world_.size());
  TinyLoop clean = run(shape);
  clean.issue_right(7);
  clean.drain();
  for (const int rank : {0, last()}) {
    TinyLoop struck = run(shape);
    strike(struck, rank);
    ASSERT_EQ(struck.reports.size(), 7U);
    for (std::size_t i = 0; i < 7; ++i) {
      EXPECT_TRUE(struck.reports[i].ok);
      ASSERT_EQ(struck.reports[i].first.has_value(), i == 3) << "step " << i + 1;
    }
    EXPECT_FALSE(struck.reports[3].first->same_bits) << "what all ranks add up";
    EXPECT_EQ(struck.reports[3].first->same_own_loss, !here(rank));
    EXPECT_EQ(struck.reports[3].first->same_own_norm, !here(rank));
    EXPECT_EQ(struck.state(), clean.state());
    EXPECT_EQ(struck.position(), clean.position());
  }
}

TEST_F(loop_ranks, an_error_behind_the_loss_is_told_by_the_own_gradients) {
  for (const bool zero : {false, true}) {
    std::vector<std::string> keys = kSpikes;
    if (zero) keys.emplace_back("parallel.zero=1");
    const auto make = [&] {
      return TinyLoop(keys, Loop::Bad::done_again,
                      parallel::connect(world_, parallel::fit_grid(world_.size()),
                                        parallel::make_host_transport));
    };
    TinyLoop clean = make();
    clean.issue_right(7);
    clean.drain();
    for (const int rank : {0, last()}) {
      TinyLoop struck = make();
      struck.issue_right(3);
      struck.spoil_gradient(here(rank));
      struck.issue_right(1);
      struck.spoil_gradient(false);
      struck.issue_right(3);
      struck.drain();
      ASSERT_EQ(struck.reports.size(), 7U);
      ASSERT_TRUE(struck.reports[3].first && struck.reports[3].ok);
      const FirstAttempt& first = *struck.reports[3].first;
      EXPECT_FALSE(first.same_bits);
      EXPECT_TRUE(first.same_own_loss);
      EXPECT_EQ(first.same_own_norm, !here(rank)) << "zero " << zero << ", rank " << rank;
      EXPECT_EQ(struck.state(), clean.state());
    }
  }
}

TEST_F(loop_ranks, stages_do_a_step_again_together) {
  const parallel::GridShape shape = parallel::fit_grid(world_.size(), 1, 1, 1, 2);
  TinyLoop clean = run(shape), struck = run(shape);
  clean.issue_right(7);
  clean.drain();
  strike(struck, last());  // of the last stage, which has the losses
  ASSERT_EQ(struck.reports.size(), 7U);
  ASSERT_TRUE(struck.reports[3].first && struck.reports[3].ok);
  EXPECT_EQ(struck.reports[3].first->same_own_loss, !here(last()));
  EXPECT_EQ(struck.state(), clean.state());
}

TEST_F(loop_ranks, a_lasting_cause_is_none_of_a_rank) {
  TinyLoop loop = run(parallel::fit_grid(world_.size()));
  loop.issue_right(3);
  loop.issue(here(0));
  loop.drain(here(0));
  ASSERT_TRUE(loop.reports.back().first && !loop.reports.back().ok);
  const FirstAttempt& first = *loop.reports.back().first;
  EXPECT_TRUE(first.same_bits && first.same_own_loss && first.same_own_norm);
}

}  // namespace
}  // namespace stowage::run
