// The joint proof over MPI: all ranks learn what rank 0 finds.
#include "parallel/proof/require_joint_proof.hpp"

#include <gtest/gtest.h>

#include "ctest/parallel/hand_plan.hpp"
#include "ctest/parallel/mpi_support.hpp"

namespace stowage::parallel {
namespace {

class require_joint_proof : public MpiTest {
 protected:
  /// Two groups of all ranks on a queue each; the last rank may turn their order.
  std::string verdict(bool last_rank_turns, bool one_waits) {
    std::vector<int> all;
    for (int rank = 0; rank < world.size(); ++rank) all.push_back(rank);
    const bool turned = last_rank_turns && world.rank() == world.size() - 1;
    HandPlan plan("train", 2);
    const int first = turned ? 2 : 1, second = turned ? 1 : 2;
    const int before = plan.call(names[first], groups[first], all, first, {0});
    const int after = plan.call(names[second], groups[second], all, second,
                                one_waits ? std::vector{0, before} : std::vector{0});
    plan.join({before, after});
    const execution::PlannedProgram planned = plan.planned();
    try {
      parallel::require_joint_proof(world, {&planned, 1}, order);
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), execution::Exit::runtime);
      return error.what();
    }
    return {};
  }

  RankOrder order = RankOrder::partial;
  const char* const names[3] = {"", "gradients", "rows"};
  const char* const groups[3] = {"", "data", "tensor"};
};

TEST_F(require_joint_proof, plans_that_fit_together) {
  EXPECT_EQ(verdict(false, true), "");
  EXPECT_EQ(verdict(true, false), "");
}

TEST_F(require_joint_proof, every_rank_is_told_of_a_deadlock) {
  const std::string text = verdict(true, true);
  if (world.size() == 1) {
    EXPECT_EQ(text, "");
    return;
  }
  EXPECT_EQ(text.rfind("the plans of the ranks do not fit together:\n  program train would wait "
                       "for ever: ",
                       0),
            0U)
      << text;
  EXPECT_NE(text.find(fmt::format("rank {} starts all_reduce gradients", world.size() - 1)),
            std::string::npos)
      << text;
}

TEST_F(require_joint_proof, chains_are_asked_for) {
  order = RankOrder::chain;
  EXPECT_EQ(verdict(false, true), "");
  EXPECT_NE(verdict(false, false).find("beside"), std::string::npos);
}

}  // namespace
}  // namespace stowage::parallel
