#include "parallel/proof/order_graph.hpp"

#include <algorithm>
#include <cstdint>

namespace stowage::parallel {
namespace {

/// The edges of each node, by the end that they start from.
class Adjacency {
 public:
  Adjacency(int nodes, std::span<const OrderEdge> edges, int OrderEdge::*end)
      : first_(static_cast<std::size_t>(nodes) + 1, 0), list_(edges.size()) {
    for (const OrderEdge& edge : edges) ++first_[static_cast<std::size_t>(edge.*end) + 1];
    for (std::size_t n = 1; n < first_.size(); ++n) first_[n] += first_[n - 1];
    std::vector<int> next(first_.begin(), first_.end() - 1);
    for (std::size_t e = 0; e < edges.size(); ++e)
      list_[next[edges[e].*end]++] = static_cast<int>(e);
  }

  std::span<const int> of(int node) const {
    const auto n = static_cast<std::size_t>(node);
    return {list_.data() + first_[n], static_cast<std::size_t>(first_[n + 1] - first_[n])};
  }

 private:
  std::vector<int> first_;
  std::vector<int> list_;
};

/// Takes out, again and again, the nodes that no edge enters (from) or leaves (to).
/// @param in_cycle by node: nonzero if it is still there
void peel(std::span<const OrderEdge> edges, const Adjacency& adjacency, int OrderEdge::*from,
          int OrderEdge::*to, std::vector<char>& in_cycle) {
  const auto at = [](int node) { return static_cast<std::size_t>(node); };
  std::vector<int> entering(in_cycle.size(), 0);
  for (const OrderEdge& edge : edges)
    if (in_cycle[at(edge.*from)]) ++entering[at(edge.*to)];
  std::vector<int> free;
  for (std::size_t n = 0; n < in_cycle.size(); ++n)
    if (in_cycle[n] && entering[n] == 0) free.push_back(static_cast<int>(n));
  while (!free.empty()) {
    const int node = free.back();
    free.pop_back();
    in_cycle[at(node)] = 0;
    for (const int edge : adjacency.of(node)) {
      const int next = edges[at(edge)].*to;
      if (in_cycle[at(next)] && --entering[at(next)] == 0) free.push_back(next);
    }
  }
}

/// Edges to look at before the shortest cycle so far will do: a second or two.
constexpr std::int64_t kEnough = 20'000'000;

/// Searches from one node after the other, each only as far as a shorter cycle could reach.
class CycleSearch {
 public:
  CycleSearch(std::span<const OrderEdge> edges, const Adjacency& leaving,
              const std::vector<char>& in_cycle)
      : edges_(edges),
        leaving_(leaving),
        in_cycle_(in_cycle),
        seen_from_(in_cycle.size(), -1),
        came_by_(in_cycle.size(), -1) {}

  std::vector<int> shortest() {
    for (std::size_t n = 0; n < in_cycle_.size() && (best_.empty() || visits_ < kEnough); ++n)
      if (in_cycle_[n]) search(static_cast<int>(n));
    return best_;
  }

 private:
  void search(int start) {
    std::vector<int> front{start}, next;
    for (std::size_t length = 1; !front.empty() && (best_.empty() || length < best_.size());
         ++length) {
      next.clear();
      for (const int node : front) {
        visits_ += static_cast<std::int64_t>(leaving_.of(node).size());
        for (const int edge : leaving_.of(node)) {
          const int to = edges_[edge].after;
          const auto at = static_cast<std::size_t>(to);
          if (to == start) return keep(start, edge);
          if (!in_cycle_[at] || seen_from_[at] == start) continue;
          seen_from_[at] = start;
          came_by_[at] = edge;
          next.push_back(to);
        }
      }
      front.swap(next);
    }
  }

  void keep(int start, int last) {
    best_.assign(1, last);
    for (int node = edges_[last].before; node != start; node = edges_[best_.back()].before)
      best_.push_back(came_by_[node]);
    std::reverse(best_.begin(), best_.end());
  }

  std::span<const OrderEdge> edges_;
  const Adjacency& leaving_;
  const std::vector<char>& in_cycle_;
  std::vector<int> seen_from_;  ///< by node: the last start of a search that reached it
  std::vector<int> came_by_;    ///< by node: the edge of that search
  std::vector<int> best_;
  std::int64_t visits_ = 0;  ///< of edges
};

}  // namespace

std::vector<int> shortest_cycle(int nodes, std::span<const OrderEdge> edges) {
  const Adjacency leaving(nodes, edges, &OrderEdge::before);
  std::vector<char> in_cycle(static_cast<std::size_t>(nodes), 1);
  peel(edges, leaving, &OrderEdge::before, &OrderEdge::after, in_cycle);
  if (std::find(in_cycle.begin(), in_cycle.end(), 1) == in_cycle.end()) return {};
  const Adjacency entering(nodes, edges, &OrderEdge::after);
  peel(edges, entering, &OrderEdge::after, &OrderEdge::before, in_cycle);
  return CycleSearch(edges, leaving, in_cycle).shortest();
}

}  // namespace stowage::parallel
