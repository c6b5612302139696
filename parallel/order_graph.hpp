#pragma once

#include <span>
#include <vector>

namespace stowage::parallel {

/// Node `before` is done before node `after`.
struct OrderEdge {
  int before = 0;
  int after = 0;
};

/// A shortest cycle of a graph with nodes [0, nodes), as indices of edges, each from the node where
/// the one before it ends; empty if there is none. Linear without a cycle, and nearly so with a
/// short one (Kahn, "Topological sorting of large networks", 1962, leaves the nodes to search).
std::vector<int> shortest_cycle(int nodes, std::span<const OrderEdge> edges);

}  // namespace stowage::parallel
