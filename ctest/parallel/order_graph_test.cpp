// Shortest cycles, beside a search that tries every path.
#include "parallel/proof/order_graph.hpp"

#include <gtest/gtest.h>

#include <random>

namespace stowage::parallel {
namespace {

/// Length of a shortest cycle by distances between all pairs (Floyd and Warshall); 0: none.
int shortest_length(int nodes, const std::vector<OrderEdge>& edges) {
  const auto n = static_cast<std::size_t>(nodes);
  const int far = nodes + 1;
  std::vector<std::vector<int>> distance(n, std::vector<int>(n, far));
  for (const OrderEdge& edge : edges) distance[edge.before][edge.after] = 1;
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        distance[i][j] = std::min(distance[i][j], distance[i][k] + distance[k][j]);
  int least = far;
  for (std::size_t i = 0; i < n; ++i) least = std::min(least, distance[i][i]);
  return least == far ? 0 : least;
}

TEST(order_graph, cycle_to_itself_and_none) {
  EXPECT_EQ(shortest_cycle(0, {}), std::vector<int>{});
  EXPECT_EQ(shortest_cycle(2, std::vector<OrderEdge>{{0, 1}, {0, 1}}), std::vector<int>{});
  EXPECT_EQ(shortest_cycle(2, std::vector<OrderEdge>{{0, 1}, {1, 1}}), std::vector<int>{1});
}

TEST(order_graph, random_graphs) {
  std::mt19937_64 rng(1);
  int with = 0;
  for (int round = 0; round < 2000; ++round) {
    const int nodes = std::uniform_int_distribution(1, 9)(rng);
    std::uniform_int_distribution any(0, nodes - 1);
    std::vector<OrderEdge> edges(std::uniform_int_distribution<std::size_t>(0, 12)(rng));
    for (OrderEdge& edge : edges) edge = {any(rng), any(rng)};
    const std::vector<int> cycle = shortest_cycle(nodes, edges);
    ASSERT_EQ(static_cast<int>(cycle.size()), shortest_length(nodes, edges)) << "round " << round;
    for (std::size_t i = 0; i < cycle.size(); ++i)
      ASSERT_EQ(edges[cycle[i]].after, edges[cycle[(i + 1) % cycle.size()]].before);
    with += !cycle.empty();
  }
  EXPECT_GT(with, 500);
  EXPECT_LT(with, 1900);
}

}  // namespace
}  // namespace stowage::parallel
