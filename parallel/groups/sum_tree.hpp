#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/groups/ranks.hpp"
#include "parallel/groups/tree_nodes.hpp"

namespace stowage::parallel {

/// Summands in one order, each a leaf, and the tree by which they are added (tree_nodes.hpp): the
/// sum is the same bits on any number of ranks. Every rank has as many leaves, one rank's behind
/// those of the rank before.
struct SumTree {
  std::int64_t each = 1;  ///< leaves of a rank
  int rank = 0, ranks = 1;

  std::int64_t begin(int r) const { return r * each; }
  std::int64_t leaves() const { return ranks * each; }
  /// The nodes that a rank makes of its leaves: one if it is alone.
  int nodes(int r) const;
  int most_nodes() const;  ///< of a rank
  int all_nodes() const;   ///< of all ranks
  /// Nodes of all ranks before this one.
  int first_node() const;
  /// The most nodes that any rank holds while it works on another leaf.
  int most_kept() const;
  /// What this rank's leaf of a number does with its nodes.
  detail::Merge merge(std::int64_t number, bool last) const {
    return detail::merge_of(begin(rank), begin(rank) + number, last && ranks == 1);
  }
  /// "sum, tree of 24"
  std::string text() const;
};

/// Which of a rank's leaves an op adds: the number in `index` less one, or `number`.
struct Leaf {
  execution::Tensor index = {};  ///< (1) int32; none: known when the op is recorded
  std::int64_t number = 0;
  bool last = false;

  /// "7", or "each" of those that are known on the device alone.
  std::string text() const;
};

/// Adds a leaf to the nodes before it, on the compute lane: kept[k] holds node k of what is not
/// added up yet, `ranges` of it, and of `leaf` the leaf. With the last leaf the last node comes to
/// lie in `leaf`, the nodes before it stay where they are.
///
/// A leaf whose number is known reads and writes the nodes that it meets. One whose number the
/// device alone knows may meet any, so the first leaf says that it writes all: no leaf reads a node
/// before another has made it.
/// @param kept SumTree::most_kept() tensors of as many elements as `leaf`
execution::Op add_leaf(const execution::Program& program, std::string name, execution::Tensor leaf,
                       const std::vector<execution::Tensor>& kept,
                       const std::vector<execution::Range>& ranges, const Leaf& which,
                       const SumTree& tree);

/// sums = the sum of all nodes, SumTree::all_nodes() rows of as many elements as `sums`.
execution::Op add_nodes(const execution::Program& program, std::string name,
                        execution::Tensor nodes, execution::Tensor sums, const SumTree& tree);

/// sums = rows added one after another: `rows` has several times as many elements as `sums`.
execution::Op add_rows(const execution::Program& program, std::string name, Piece rows,
                       execution::Tensor sums);

}  // namespace stowage::parallel
