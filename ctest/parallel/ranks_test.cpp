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
}

TEST_F(ranks, a_grid_of_another_size_is_refused) {
  EXPECT_THROW((void)connect(world, fit_grid(world.size() + 1), make_host_transport),
               execution::Error);
}

}  // namespace
}  // namespace stowage::parallel
