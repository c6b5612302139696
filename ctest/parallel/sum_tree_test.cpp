// Sums by a tree, against the tree as it is defined: the same bits for any share of the leaves.
#include "parallel/groups/sum_tree.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <numeric>

#include "ctest/parallel/mpi_support.hpp"
#include "execution/device.hpp"
#include "execution/executor.hpp"
#include "execution/philox.hpp"
#include "offload/planner.hpp"
#include "parallel/transport/host_transport.hpp"

namespace stowage::parallel {
namespace {

using execution::Access;
using execution::Dtype;
using execution::Op;
using execution::Program;
using execution::Range;
using execution::Tensor;
using execution::View;

using Values = std::vector<float>;

/// Element i of a leaf: of any size, so that every order has a sum of its own.
float draw(std::int64_t leaf, std::int64_t i) {
  const auto bits =
      execution::random_bits(3, static_cast<std::uint64_t>(leaf), static_cast<std::uint64_t>(i));
  return std::ldexp(static_cast<float>(bits % 20001) - 10000, static_cast<int>(bits >> 40) % 13);
}

/// The definition: a range is split before as many leaves as the largest power of two below it.
float by_tree(std::int64_t begin, std::int64_t end, std::int64_t i) {
  if (end - begin == 1) return draw(begin, i);
  const auto half =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(end - begin - 1)));
  return by_tree(begin, begin + half, i) + by_tree(begin + half, end, i);
}

float in_turn(std::int64_t leaves, std::int64_t i) {
  float sum = draw(0, i);
  for (std::int64_t leaf = 1; leaf < leaves; ++leaf) sum += draw(leaf, i);
  return sum;
}

TEST(tree_nodes, are_the_fewest_that_make_a_range) {
  for (std::int64_t begin = 0; begin < 40; ++begin)
    for (std::int64_t end = begin; end < 70; ++end) {
      int nodes = 0;
      for (std::int64_t at = begin; at < end; ++nodes) {
        const std::int64_t leaves = node_leaves(at, end);
        EXPECT_EQ(at % leaves, 0);
        at += leaves;
        EXPECT_LE(at, end);
      }
      EXPECT_EQ(nodes_of(begin, end), nodes) << begin << " to " << end;
    }
}

TEST(tree_nodes, a_power_of_two_of_each_rank_is_one_node) {
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const std::int64_t each : {1, 2, 4, 16}) {
      const SumTree tree{.each = each, .ranks = ranks};
      EXPECT_EQ(tree.most_nodes(), 1);
      EXPECT_EQ(tree.all_nodes(), ranks);
      EXPECT_EQ(tree.most_kept(), std::countr_zero(static_cast<std::uint64_t>(each)));
    }
  EXPECT_EQ((SumTree{.each = 3, .ranks = 8}).most_nodes(), 2);
}

class sum_tree : public MpiTest {
 protected:
  std::vector<int> all_ranks() const {
    std::vector<int> all(static_cast<std::size_t>(world.size()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  static void copy(Program& program, const std::string& name, Piece from, Piece to) {
    Op op;
    op.name = name;
    op.uses = {{from.tensor, Access::read, from.range}, {to.tensor, Access::write, to.range}};
    op.launch = [](execution::Queue& q, std::span<const View> v) {
      q.copy(v[1].as<void>(), v[0].as<void>(), v[0].buffer().bytes());
    };
    program.append(std::move(op));
  }

  /// What this rank holds behind a step that adds all leaves of all ranks.
  Values run(const SumTree& tree, std::int64_t count, bool scatter) const {
    Program program("test");
    const Tensor x = program.input("x", Dtype::fp32, {tree.each * count});
    const Tensor sum = program.scratch("sum", Dtype::fp32, {count});
    const Tensor y = program.output("y", Dtype::fp32, {count});
    std::vector<Tensor> kept;
    for (int node = 0; node < tree.most_kept(); ++node)
      kept.push_back(program.scratch(fmt::format("kept/{}", node), Dtype::fp32, {count}));
    for (std::int64_t leaf = 0; leaf < tree.each; ++leaf) {
      copy(program, fmt::format("leaf/{}", leaf), {x, {leaf * count, (leaf + 1) * count}},
           {sum, {}});
      const std::vector<Range> halves{{0, count / 2}, {count / 2, count}};
      program.append(add_leaf(program, fmt::format("add/{}", leaf), sum, kept, halves,
                              {.number = leaf, .last = leaf + 1 == tree.each}, tree));
    }
    if (group.size() > 1)
      program.append(group.add_by_tree(program, "add_by_tree", {sum, {}}, kept, tree, scatter));
    copy(program, "keep", {sum, {}}, {y, {}});
    program.finish();
    const execution::PersistentLayout layout;
    const execution::Plan plan = offload::make_plan(program, layout);
    execution::Device device(*backend, layout, plan.bytes[1], plan.bytes[2], 0);
    execution::Executor executor(program, plan, device);
    Values mine;
    for (std::int64_t leaf = 0; leaf < tree.each; ++leaf)
      for (std::int64_t i = 0; i < count; ++i)
        mine.push_back(draw(tree.begin(tree.rank) + leaf, i));
    std::memcpy(executor.stage(x).data(), mine.data(), mine.size() * sizeof(float));
    executor.step();
    Values found(static_cast<std::size_t>(count));
    std::memcpy(found.data(), executor.result(y).data(), found.size() * sizeof(float));
    return found;
  }

  std::unique_ptr<execution::Backend> backend = execution::make_host_backend();
  RankGroup group{"all", all_ranks(), world.rank(),
                  std::make_shared<Collectives>(make_host_transport(world, "all"))};
};

TEST_F(sum_tree, is_its_definition_on_any_number_of_ranks) {
  int others = 0;
  for (const std::int64_t each : {1, 2, 3, 4, 5, 6, 7, 11, 12})
    for (const bool scatter : {false, true}) {
      const SumTree tree{.each = each, .rank = world.rank(), .ranks = world.size()};
      const std::int64_t count = scatter ? 40 * world.size() : 1001;
      const Values found = run(tree, count, scatter);
      const std::int64_t share = scatter ? count / world.size() : count;
      for (std::int64_t at = 0; at < share; ++at) {
        const std::int64_t i = scatter ? world.rank() * share + at : at;
        ASSERT_EQ(found[static_cast<std::size_t>(i)], by_tree(0, tree.leaves(), i))
            << each << " leaves of each of " << world.size() << " ranks, element " << i;
        others += found[static_cast<std::size_t>(i)] != in_turn(tree.leaves(), i) ? 1 : 0;
      }
    }
  EXPECT_GT(others, 100) << "another order gives the same bits: the elements show nothing";
}

/// Many elements go a row at a time.
TEST_F(sum_tree, long_ones_too) {
  const SumTree tree{.each = 3, .rank = world.rank(), .ranks = world.size()};
  const std::int64_t count = (std::int64_t{5} << 20) * (world.size() == 2 ? 2 : 1) + 3;
  const Values found = run(tree, count, false);
  for (std::int64_t i = 0; i < count; i += 997)
    ASSERT_EQ(found[static_cast<std::size_t>(i)], by_tree(0, tree.leaves(), i)) << i;
  EXPECT_EQ(found.back(), by_tree(0, tree.leaves(), count - 1));
}

}  // namespace
}  // namespace stowage::parallel
