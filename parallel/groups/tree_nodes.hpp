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

/// Elements of a row that one thread reads or writes at once: 16 bytes.
template <class A>
struct alignas(16) TreePack {
  static constexpr int kElements = 16 / sizeof(A);
  A values[kElements];

  friend STOWAGE_PORTABLE TreePack operator+(const TreePack& left, const TreePack& right) {
    TreePack sum;
    for (int i = 0; i < kElements; ++i) sum.values[i] = left.values[i] + right.values[i];
    return sum;
  }
};

/// How many nodes lie before a leaf, and how many behind it: nodes [after - 1, before) are added to
/// the leaf, and the sum becomes node after - 1.
struct Merge {
  int before = 0, after = 0;
};

/// @param begin first leaf of the rank  @param at the leaf  @param all the last one leaves one node
STOWAGE_PORTABLE constexpr Merge merge_of(std::int64_t begin, std::int64_t at, bool all) {
  return {nodes_of(begin, at), all ? 1 : nodes_of(begin, at + 1)};
}

/// Element i of a leaf and of the nodes before it.
template <class A>
struct AddLeaf {
  A* leaf;
  A* kept[kMostTreeNodes];
  const std::int32_t* index;  ///< null: `merge` is known; else the leaf's number and one more
  std::int64_t begin;         ///< first leaf of this rank
  Merge merge;
  bool last;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const { add<A>(i, found()); }

  STOWAGE_PORTABLE Merge found() const {
    return index == nullptr ? merge : merge_of(begin, begin + *index - 1, false);
  }
  /// Pack `at` of rows of T.
  template <class T>
  STOWAGE_PORTABLE void add(std::int64_t at, const Merge& found) const {
    T sum = reinterpret_cast<const T*>(leaf)[at];
    for (int node = found.before; node-- >= found.after;)
      sum = reinterpret_cast<const T*>(kept[node])[at] + sum;
    reinterpret_cast<T*>(last ? leaf : kept[found.after - 1])[at] = sum;
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

  STOWAGE_PORTABLE void operator()(std::int64_t i) const { add<A>(i); }

  /// Pack `at` of rows of T, of any numbers of nodes.
  template <class T>
  STOWAGE_PORTABLE void add(std::int64_t at) const {
    T sums[kMostTreeNodes];
    int height = 0;
    const A* other = others;
    for (int r = 0; r < ranks; ++r) {
      const std::int64_t end = (r + 1) * each;
      int node = 0;
      for (std::int64_t first = r * each; first < end;) {
        T sum = reinterpret_cast<const T*>(r == rank ? own[node++] : other)[at];
        if (r != rank) other += stride;
        first += node_leaves(first, end);
        const int after = nodes_of(0, first);
        while (height >= after) sum = sums[--height] + sum;
        sums[height++] = sum;
      }
    }
    T sum = sums[--height];
    while (height > 0) sum = sums[--height] + sum;
    reinterpret_cast<T*>(out)[at] = sum;
  }

  /// Whether each rank has one node.
  STOWAGE_PORTABLE bool even() const { return (each & (each - 1)) == 0; }
  /// The same of `kNodes` ranks with one node each, a power of two of them.
  template <int kNodes, class T>
  STOWAGE_PORTABLE T even_sum(std::int64_t at, int first) const {
    if constexpr (kNodes == 1) {
      const A* row = first == rank ? own[0] : others + before(first) * stride;
      return reinterpret_cast<const T*>(row)[at];
    } else {
      constexpr int kHalf = kNodes / 2;
      const T left = even_sum<kHalf, T>(at, first);
      return left + even_sum<kHalf, T>(at, first + kHalf);
    }
  }
  STOWAGE_PORTABLE int before(int r) const { return rank >= 0 && rank < r ? r - 1 : r; }
};

/// What parallel_for launches for them: sum_tree.cu says why these are no plain launches.
template <class A>
int launch_on_stream(void* stream, std::int64_t count, const AddLeaf<A>& add);
template <class A>
int launch_on_stream(void* stream, std::int64_t count, const AddNodes<A>& add);

}  // namespace detail
}  // namespace stowage::parallel
