// The joint proof on jobs written by hand: what it accepts, and the sentences for what it refuses.
#include "parallel/proof/joint_proof.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "execution/error.hpp"

namespace stowage::parallel {
namespace {

using execution::Dtype;
using Programs = std::vector<TracedProgram>;

/// Two ranks in groups "data" (0) and "tensor" (1), or as many as are asked for.
RankTrace rank_with(int rank, Programs programs, int ranks = 2) {
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  return {rank,
          {{"data", all}, {"tensor", all}},
          std::make_shared<const Programs>(std::move(programs))};
}

TracedOp gather(std::string name, int group = 0) {
  return {std::move(name), group, "all_gather", 4096, Dtype::bf16, "", {}};
}

TracedOp exchange(std::string name, std::vector<execution::Transfer> transfers) {
  return {std::move(name), 0, "exchange", 0, Dtype::bf16, "", std::move(transfers)};
}

/// Calls each op once.
TracedProgram calls(std::vector<TracedOp> ops, std::vector<TracedEdge> edges = {}) {
  TracedProgram program{"train", std::move(ops), {}, std::move(edges), {}};
  for (int op = 0; op < static_cast<int>(program.ops.size()); ++op) program.calls.push_back(op);
  return program;
}

std::vector<std::string> prove(Programs first, Programs second,
                               RankOrder order = RankOrder::partial) {
  return prove_jointly(std::vector{rank_with(0, std::move(first)), rank_with(1, std::move(second))},
                       order);
}

using Faults = std::vector<std::string>;

TEST(joint_proof, ranks_without_communication) {
  EXPECT_EQ(prove({calls({})}, {calls({})}), Faults{});
  EXPECT_EQ(prove({}, {}), Faults{});
}

TEST(joint_proof, other_op_is_told_with_its_place) {
  EXPECT_EQ(prove({calls({gather("a"), gather("b")})}, {calls({gather("a"), gather("c")})}),
            Faults{"program train, group data: rank 1 issues all_gather c of 4096 x bf16 as number "
                   "2, rank 0 issues all_gather b of 4096 x bf16"});
}

TEST(joint_proof, most_ranks_are_taken_to_be_right) {
  std::vector<RankTrace> job;
  for (int rank = 0; rank < 12; ++rank)
    job.push_back(rank_with(rank, {calls({gather(rank == 0 ? "b" : "a")})}, 12));
  EXPECT_EQ(prove_jointly(job),
            Faults{"program train, group data: rank 0 issues all_gather b of 4096 x bf16 as number "
                   "1, ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3 more issue all_gather a of 4096 x bf16"});
}

TEST(joint_proof, ranks_that_issue_less) {
  std::vector<RankTrace> job;
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<TracedOp> ops{gather("a")};
    if (rank != 2) ops.push_back(gather("b"));
    job.push_back(rank_with(rank, {calls(ops)}, 3));
  }
  EXPECT_EQ(prove_jointly(job), Faults{"program train, group data: rank 2 issues nothing more as "
                                       "number 2, ranks 0, 1 issue all_gather b of 4096 x bf16"});
}

TEST(joint_proof, two_groups_in_other_order_may_run_at_once) {
  EXPECT_EQ(prove({calls({gather("a"), gather("b", 1)})}, {calls({gather("b", 1), gather("a")})}),
            Faults{});
}

TEST(joint_proof, shortest_cycle_of_two_groups) {
  const TracedProgram first = calls({gather("a"), gather("b", 1)}, {{0, 1}});
  const TracedProgram second = calls({gather("b", 1), gather("x", 1), gather("a")}, {{1, 2}});
  TracedProgram longer = first;
  longer.ops.push_back(gather("x", 1));
  longer.calls.push_back(2);
  EXPECT_EQ(prove({longer}, {calls({gather("b", 1), gather("x", 1), gather("a")}, {{0, 2}})}),
            Faults{"program train would wait for ever: rank 0 starts all_gather b (number 1 of "
                   "group tensor) only after all_gather a (number 1 of group data); rank 1 starts "
                   "all_gather a (number 1 of group data) only after all_gather b (number 1 of "
                   "group tensor)"});
  EXPECT_NE(prove({longer}, {second}).front().find("all_gather x"), std::string::npos);
}

TEST(joint_proof, what_is_apart_in_another_program_is_found) {
  const TracedProgram good = calls({gather("a")});
  TracedProgram bad = calls({gather("b")});
  bad.name = "evaluate";
  TracedProgram other = calls({gather("c")});
  other.name = "evaluate";
  const Faults faults = prove({good, bad}, {good, other});
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults.front().rfind("program evaluate, group data", 0), 0U) << faults.front();
}

TEST(joint_proof, programs_in_another_order) {
  TracedProgram train = calls({}), evaluate = calls({});
  evaluate.name = "evaluate";
  EXPECT_EQ(prove({train, evaluate}, {evaluate, train}),
            Faults{"rank 1 has the programs evaluate, train; rank 0, train, evaluate"});
  EXPECT_EQ(prove({train, evaluate}, {train}),
            Faults{"rank 1 has the programs train; rank 0, train, evaluate"});
}

TEST(joint_proof, members_in_another_order) {
  std::vector<RankTrace> job{rank_with(0, {calls({})}), rank_with(1, {calls({})})};
  job[1].groups[0].members = {1, 0};
  EXPECT_EQ(prove_jointly(job),
            (Faults{"rank 0 says that group data is ranks 0, 1; rank 1, that it "
                    "is ranks 1, 0",
                    "rank 1 says that group data is ranks 1, 0; rank 0, that "
                    "it is ranks 0, 1"}));
  job[1].groups[0].members = {0};
  EXPECT_EQ(prove_jointly(job).front(),
            "rank 1 says that group data is rank 0: is not one of them");
  job[1].groups[0].members = {1, 2};
  EXPECT_EQ(prove_jointly(job).front(),
            "rank 1 says that group data is ranks 1, 2: the job has ranks 0 to 1");
  job[1].groups[0].members = {1, 1};
  EXPECT_EQ(prove_jointly(job).front(),
            "rank 1 says that group data is ranks 1, 1: names one twice");
}

TEST(joint_proof, sends_meet_receives) {
  const TracedProgram sends = calls({exchange("give", {{1, true, 32}})});
  EXPECT_EQ(prove({sends}, {calls({exchange("take", {{0, false, 32}})})}), Faults{});
  EXPECT_EQ(prove({sends}, {calls({exchange("take", {{0, false, 64}})})}),
            Faults{"program train, group data: as message 1 from rank 0 to rank 1, rank 0 sends 32 "
                   "x bf16 in exchange give, rank 1 receives 64 x bf16 in exchange take"});
  EXPECT_EQ(prove({sends}, {calls({})}),
            Faults{"program train, group data: as message 1 from rank 0 to rank 1, rank 0 sends 32 "
                   "x bf16 in exchange give, rank 1 receives nothing more"});
  const TracedOp give = exchange("give", {{1, true, 32}}),
                 take = exchange("take", {{0, false, 64}});
  EXPECT_EQ(prove({calls({give, give})}, {calls({take, take})}).size(), 1U) << "the first says it";
  EXPECT_EQ(prove({calls({exchange("give", {{2, true, 32}})})}, {calls({})}),
            Faults{"program train, group data: rank 0 names number 2 of 2 members as a peer in "
                   "exchange give"});
}

TEST(joint_proof, two_sends_that_wait_for_each_other) {
  // Sends first on both ranks block; both directions in one exchange do not.
  const auto one_by_one = [](int peer) {
    return calls({exchange("give", {{peer, true, 8}}), exchange("take", {{peer, false, 8}})});
  };
  const Faults faults = prove({one_by_one(1)}, {one_by_one(0)});
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults.front(),
            "program train would wait for ever: rank 0 starts exchange take (number 2 of group "
            "data) only after exchange give (number 1 of group data); exchange give (number 1 of "
            "group data) of rank 1 ends only when exchange take (number 2 of group data) of rank 0 "
            "starts; rank 1 starts exchange take (number 2 of group data) only after exchange give "
            "(number 1 of group data); exchange give (number 1 of group data) of rank 0 ends only "
            "when exchange take (number 2 of group data) of rank 1 starts");
  const auto together = [](int peer) {
    return calls({exchange("swap", {{peer, true, 8}, {peer, false, 8}})});
  };
  EXPECT_EQ(prove({together(1)}, {together(0)}), Faults{});
}

TEST(joint_proof, chain_is_asked_for_on_a_gpu) {
  TracedProgram overlapping = calls({gather("a"), gather("b", 1)});
  overlapping.loose = {1};
  EXPECT_EQ(prove({overlapping}, {overlapping}), Faults{});
  EXPECT_EQ(prove({overlapping}, {calls({gather("a"), gather("b", 1)})}, RankOrder::chain),
            Faults{"program train: rank 0 may run all_gather b of 4096 x bf16 beside all_gather a "
                   "of 4096 x bf16: on a GPU, calls of one chain follow each other"});
}

/// A rank in a group (0), alone there, and "pipeline" (1) of two.
RankTrace stage(int rank, Programs programs, const std::string& group = "tensor") {
  return {rank,
          {{group, {rank}}, {"pipeline", {0, 1}}},
          std::make_shared<const Programs>(std::move(programs))};
}

TracedOp message(std::string name, execution::Transfer transfer) {
  TracedOp op = exchange(std::move(name), {transfer});
  op.group = 1;
  return op;
}

TEST(joint_proof, messages_of_stages_are_a_chain_of_their_own) {
  // Beside a gather a message may run, so the call before that of its chain is the message before.
  TracedProgram first =
      calls({message("m", {1, true, 8}), gather("a"), message("n", {1, true, 8})});
  TracedProgram second = calls({message("m", {0, false, 8}), message("n", {0, false, 8})});
  for (const char* group : {"data", "tensor"}) {
    const auto prove_stages = [&] {
      return prove_jointly(std::vector{stage(0, {first}, group), stage(1, {second}, group)},
                           RankOrder::chain);
    };
    first.loose.clear();
    EXPECT_EQ(prove_stages(), Faults{});
    first.loose = {2};
    ASSERT_EQ(prove_stages().size(), 1U);
    EXPECT_NE(prove_stages().front().find("may run exchange n"), std::string::npos);
    EXPECT_NE(prove_stages().front().find("beside exchange m"), std::string::npos) << group;
  }
}

TEST(joint_proof, what_one_chain_would_block_is_refused_where_machines_may_make_it_one) {
  // The first rank gathers behind what it receives, which the second sends behind the gather.
  std::vector<RankTrace> job{stage(0, {calls({message("m", {1, false, 8}), gather("a")})}),
                             stage(1, {calls({gather("a"), message("m", {0, true, 8})})})};
  for (RankTrace& trace : job) trace.groups[0].members = {0, 1};
  EXPECT_EQ(prove_jointly(job), Faults{});
  EXPECT_EQ(prove_jointly(job, RankOrder::chain).size(), 1U);
}

TEST(joint_proof, traces_come_in_the_order_of_ranks) {
  EXPECT_THROW(prove_jointly(std::vector{rank_with(1, {}), rank_with(0, {})}), execution::Error);
}

}  // namespace
}  // namespace stowage::parallel
