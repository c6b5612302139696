// The communicators of the process grid.
#include "parallel/groups.hpp"

#include <gtest/gtest.h>

#include "ctest/parallel/mpi_support.hpp"

namespace stowage::parallel {
namespace {

class groups : public MpiTest {
 protected:
  /// Checks each group of a grid against the arithmetic: who is in it, and in which order.
  void check(const GridShape& shape) {
    const ProcessGrid grid(world, shape);
    EXPECT_EQ(grid.coordinates(), coordinates(shape, world.rank()));
    for (std::size_t g = 0; g < kGroups; ++g) {
      const Communicator& group = grid.group(static_cast<Group>(g));
      const std::vector<int> expected = members(shape, world.rank(), axes(static_cast<Group>(g)));
      std::vector<int> ranks(static_cast<std::size_t>(group.size()));
      const int mine = world.rank();
      STOWAGE_MPI(MPI_Allgather(&mine, 1, MPI_INT, ranks.data(), 1, MPI_INT, group.handle()));
      EXPECT_EQ(ranks, expected) << name(static_cast<Group>(g)) << " of " << shape.describe();
    }
  }
};

TEST_F(groups, of_every_grid_that_fits) {
  const int n = world.size();
  for (int tensor = 1; tensor <= n; ++tensor)
    for (int context = 1; tensor * context <= n; ++context)
      for (int expert = 1; tensor * context * expert <= n; ++expert)
        for (int pipeline = 1; tensor * context * expert * pipeline <= n; ++pipeline)
          if (n % (tensor * context * expert * pipeline) == 0)
            check(fit_grid(n, tensor, context, expert, pipeline));
}

TEST_F(groups, grid_of_another_size_is_refused) {
  EXPECT_THROW(ProcessGrid(world, fit_grid(world.size() + 1)), execution::Error);
}

}  // namespace
}  // namespace stowage::parallel
