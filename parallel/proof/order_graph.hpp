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
/// the one before it ends; empty if there is none.
///
/// Linear without a cycle (Kahn, "Topological sorting of large networks", 1962). What a cycle keeps
/// from being sorted is searched breadth first, from each node until 20 million edges were looked
/// at: a cycle is always found, and a shortest one if that was enough.
std::vector<int> shortest_cycle(int nodes, std::span<const OrderEdge> edges);

}  // namespace stowage::parallel
