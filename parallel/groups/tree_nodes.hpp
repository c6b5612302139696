#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

/// The tree that a number of summands is added by, and its arithmetic for both backends.
///
/// A node is 2^k leaves, the first of which is a multiple of 2^k; it is the sum of its left half
/// and its right half. What [0, leaves) has of nodes is added from the right. So the sum of the
/// nodes of [0, a) and of [a, leaves) is that of [0, leaves), wherever a lies.
namespace stowage::parallel {

/// Nodes that any op takes of one rank.
inline constexpr int kMostTreeNodes = 32;

/// Leaves of the first node of [begin, end).
STOWAGE_PORTABLE constexpr std::int64_t node_leaves(std::int64_t begin, std::int64_t end) {
  std::int64_t leaves = 1;
  while (begin % (2 * leaves) == 0 && begin + 2 * leaves <= end) leaves *= 2;
  return leaves;
}

/// The fewest nodes that make [begin, end).
STOWAGE_PORTABLE constexpr int nodes_of(std::int64_t begin, std::int64_t end) {
  int nodes = 0;
  for (; begin < end; begin /= 2, end /= 2) {
    nodes += static_cast<int>(begin % 2 + end % 2);
    begin += begin % 2;
  }
  return nodes;
}

namespace detail {

/// Element i of a leaf and of the nodes before it.
template <class A>
struct AddLeaf {
  A* leaf;
  A* kept[kMostTreeNodes];
  const std::int32_t* index;  ///< null: `number` is known
  std::int64_t begin;         ///< first leaf of this rank
  std::int64_t number;
  bool last, alone;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    const std::int64_t at = begin + (index == nullptr ? number : *index - 1);
    int height = nodes_of(begin, at);
    const int after = last && alone ? 1 : nodes_of(begin, at + 1);
    A sum = leaf[i];
    while (height >= after) sum = kept[--height][i] + sum;
    (last ? leaf : kept[height])[i] = sum;
  }
};

/// out[i] = element i of all ranks' nodes. The other ranks' lie one behind the other.
template <class A>
struct AddNodes {
  const A* others;
  std::int64_t stride;  ///< elements from one node to the next
  const A* own[kMostTreeNodes];
  A* out;
  std::int64_t each;
  int rank, ranks;  ///< rank -1: `others` has all

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    A sums[kMostTreeNodes];
    int height = 0;
    const A* other = others + i;
    for (int r = 0; r < ranks; ++r) {
      const std::int64_t end = (r + 1) * each;
      int node = 0;
      for (std::int64_t begin = r * each; begin < end;) {
        A sum = r == rank ? own[node++][i] : *other;
        if (r != rank) other += stride;
        begin += node_leaves(begin, end);
        const int after = nodes_of(0, begin);
        while (height >= after) sum = sums[--height] + sum;
        sums[height++] = sum;
      }
    }
    A sum = sums[--height];
    while (height > 0) sum = sums[--height] + sum;
    out[i] = sum;
  }
};

}  // namespace detail
}  // namespace stowage::parallel
