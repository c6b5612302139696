// The groups of the process grid as layers see them, with a transport for each.
#include <gtest/gtest.h>

#include "ctest/parallel/mpi_support.hpp"
#include "execution/error.hpp"
#include "parallel/transport/connect.hpp"
#include "parallel/transport/host_transport.hpp"

namespace stowage::parallel {
namespace {

class ranks : public MpiTest {
 protected:
  /// Checks each group of a grid against the arithmetic: who is in it, in which order, and that
  /// planned groups are those that are connected.
  void check(const GridShape& shape) {
    const Ranks connected = connect(world, shape, make_host_transport);
    const Ranks planned = planned_ranks(shape, world.rank());
    EXPECT_EQ(connected.coordinates, coordinates(shape, world.rank()));
    for (std::size_t g = 0; g < kGroups; ++g) {
      const auto which = static_cast<Group>(g);
      const RankGroup& group = connected.group(which);
      EXPECT_EQ(group.members(), members(shape, world.rank(), axes(which)))
          << name(which) << " of " << shape.describe();
      EXPECT_EQ(group.members()[group.rank()], world.rank());
      EXPECT_EQ(group.name(), planned.group(which).name());
      EXPECT_EQ(group.members(), planned.group(which).members());
    }
  }
};

TEST_F(ranks, of_every_grid_that_fits) {
  const int n = world.size();
  for (int tensor = 1; tensor <= n; ++tensor)
    for (int context = 1; tensor * context <= n; ++context)
      for (int expert = 1; tensor * context * expert <= n; ++expert)
        for (int pipeline = 1; tensor * context * expert * pipeline <= n; ++pipeline)
          if (n % (tensor * context * expert * pipeline) == 0)
            check(fit_grid(n, tensor, context, expert, pipeline));
}

TEST_F(ranks, groups_of_the_same_members_are_one) {
  const Ranks data = planned_ranks(fit_grid(4), 1);
  EXPECT_EQ(&data.group(Group::data), &data.group(Group::world));
  EXPECT_EQ(&data.group(Group::data), &data.group(Group::expert_gradients));
  EXPECT_EQ(data.group(Group::world).name(), "data");
  const Ranks both = planned_ranks(fit_grid(4, 1, 1, 2), 1);
  EXPECT_NE(&both.group(Group::dense_gradients), &both.group(Group::expert_gradients));
  EXPECT_EQ(both.group(Group::expert_gradients).name(), "data");
  EXPECT_EQ(both.group(Group::dense_gradients).name(), "dense_gradients");
}

TEST_F(ranks, a_tensor_of_several_buffers_is_not_exchanged) {
  execution::Program program("payloads");
  const execution::Tensor payload =
      program.add({.name = "q",
                   .buffers = {{"payload", execution::Dtype::bf16, {8}},
                               {"scale", execution::Dtype::fp32, {1}}},
                   .module = {}});
  const Ranks planned = planned_ranks(fit_grid(2), 0);
  const RankGroup& data = planned.group(Group::data);
  EXPECT_THROW((void)data.all_gather(program, "gather", {payload, {}}), execution::Error);
  EXPECT_THROW((void)data.broadcast(program, "broadcast", {payload, {}}, 0), execution::Error);
  EXPECT_THROW((void)data.exchange(program, "send", {{1, true, {payload, {0, 4}}, "q"}}),
               execution::Error);
  // A rank's part of a gather is: its scale stays, and all ranks have that.
  const execution::Tensor all = program.scratch("all", execution::Dtype::bf16, {16});
  for (const execution::Op& op :
       {data.all_gather_from(program, "gather", {payload, {}}, {all, {}}),
        data.gather_ring(program, "ring", {payload, {}}, {all, {}}, {1})}) {
    EXPECT_EQ(op.cost.bytes, 16);
    EXPECT_EQ(op.uses.front().tensor, payload);
  }
  EXPECT_THROW((void)data.gather_ring(program, "ring", {payload, {0, 4}}, {payload, {}}, {1}),
               execution::Error);
}

/// Ops of rank 1 of four, which are planned and never launched.
struct Planned {
  execution::Program program{"pieces"};
  execution::Tensor all = scratch("all", 40), others = scratch("others", 40),
                    part = scratch("part", 40);
  RankGroup group{"data", {0, 1, 2, 3}, 1, nullptr};

  execution::Tensor scratch(const char* name, std::int64_t elements) {
    return program.scratch(name, execution::Dtype::fp32, {elements});
  }
  execution::Op hand_out(std::int64_t whole, std::int64_t arriving, execution::Range some) {
    return group.send_partials(program, "hand out", {all, {0, whole}}, {others, {0, arriving}},
                               {1, 3}, some);
  }
  execution::Op sum_up(std::int64_t arriving, std::int64_t sums) {
    return group.reduce_partials(program, "sum", {all, {}}, {others, {0, arriving}},
                                 {part, {0, sums}});
  }
  execution::Op gather(std::int64_t share) {
    return group.all_gather_from(program, "gather", {part, {0, share}}, {all, {}});
  }
  execution::Op ring(std::int64_t share) {
    return group.gather_ring(program, "ring", {part, {0, share}}, {all, {}}, {1, 3});
  }
  execution::Op transpose(std::int64_t from, std::int64_t to) {
    return group.all_to_all(program, "transpose", {all, {0, from}}, {others, {0, to}});
  }
};

TEST_F(ranks, pieces_that_do_not_fit_each_other_are_refused) {
  Planned p;
  EXPECT_NO_THROW((void)p.hand_out(40, 30, {0, 10}));
  EXPECT_THROW((void)p.hand_out(40, 31, {0, 10}), execution::Error);
  EXPECT_THROW((void)p.hand_out(40, 29, {0, 10}), execution::Error);
  EXPECT_THROW((void)p.hand_out(39, 30, {0, 9}), execution::Error);
  EXPECT_THROW((void)p.hand_out(40, 30, {0, 11}), execution::Error);
  EXPECT_NO_THROW((void)p.sum_up(30, 10));
  for (const auto& [arriving, sums] : {std::pair(31, 10), {29, 10}, {30, 9}, {30, 11}})
    EXPECT_THROW((void)p.sum_up(arriving, sums), execution::Error) << arriving << " " << sums;
  EXPECT_NO_THROW((void)p.gather(10));
  EXPECT_NO_THROW((void)p.ring(10));
  for (const std::int64_t share : {9, 11}) {
    EXPECT_THROW((void)p.gather(share), execution::Error);
    EXPECT_THROW((void)p.ring(share), execution::Error);
  }
  EXPECT_NO_THROW((void)p.transpose(40, 40));
  for (const auto& [from, to] : {std::pair(40, 36), {36, 40}, {38, 38}})
    EXPECT_THROW((void)p.transpose(from, to), execution::Error) << from << " " << to;
}

/// Bytes on the wire are those that leave a rank; sums are counted where they are made.
TEST_F(ranks, ops_cost_what_they_move_and_add) {
  Planned p;
  const auto cost = [](const execution::Op& op) { return std::pair(op.cost.flops, op.cost.bytes); };
  EXPECT_EQ(cost(p.hand_out(40, 30, {2, 5})), std::pair(40.0, 2 * 3 * 4.0));
  EXPECT_EQ(cost(p.sum_up(30, 10)), std::pair(30.0, 50 * 4.0));
  EXPECT_EQ(cost(p.gather(10)), std::pair(40.0, 30 * 4.0));
  EXPECT_EQ(cost(p.ring(10)), std::pair(40.0, 20 * 4.0));
  EXPECT_EQ(cost(p.transpose(40, 40)), std::pair(40.0, 30 * 4.0));
}

TEST_F(ranks, a_grid_of_another_size_is_refused) {
  EXPECT_THROW((void)connect(world, fit_grid(world.size() + 1), make_host_transport),
               execution::Error);
}

}  // namespace
}  // namespace stowage::parallel
