// The same on several ranks, each with data of its own: collectives lie inside the graphs.
#include <gtest/gtest.h>

#include "matrix.hpp"
#include "parallel/collectives.hpp"
#include "parallel/mpi.hpp"

namespace stowage::ctest {
namespace {

TEST(matrix_mpi, every_pair_of_choices_gives_the_bits_of_the_plain_run) {
  const parallel::Communicator world = parallel::Communicator::world();
  Matrix cells({.backend = [] { return execution::make_host_backend(); },
                .adjust =
                    [&](layers::TrainerOptions& options) {
                      options.ranks = world.size();
                      options.state.shards = world.size();
                      auto collectives = parallel::make_host_collectives(world, "data");
                      options.all_reduce = [collectives](const layers::Program& program,
                                                         std::string name,
                                                         std::span<const execution::Tensor> tensors,
                                                         layers::Reduction how) {
                        return parallel::all_reduce_op(program, std::move(name), tensors,
                                                       how == layers::Reduction::sum
                                                           ? parallel::Reduction::sum
                                                           : parallel::Reduction::min,
                                                       collectives);
                      };
                    },
                .rank = world.rank()});
  for (const Cell& cell : pairwise_cells()) cells.check(cell);
  for (const Cell& cell : knob_cells()) cells.check(cell);
}

}  // namespace
}  // namespace stowage::ctest
