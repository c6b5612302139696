#include "offload/packing.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "offload/skyline.hpp"

namespace stowage::offload {
namespace {

using Order = std::vector<int>;

constexpr int kMostTries = 60;  ///< from each start
constexpr double kMostPairs =
    1e8;  ///< pairs of blocks looked at from each start: some tenths of a s

std::size_t largest_live(const std::vector<Block>& blocks) {
  int last = 0;
  for (const Block& block : blocks) last = std::max(last, block.end);
  std::vector<std::size_t> live(static_cast<std::size_t>(last) + 2, 0);
  for (const Block& block : blocks) {
    live[block.begin] += block.bytes;
    live[static_cast<std::size_t>(block.end) + 1] -= block.bytes;
  }
  std::size_t sum = 0;
  std::size_t most = 0;
  for (const std::size_t change : live) most = std::max(most, sum += change);
  return most;
}

/// Blocks that live together with each block.
std::vector<std::vector<int>> neighbours(const std::vector<Block>& blocks) {
  Order by_begin(blocks.size());
  std::iota(by_begin.begin(), by_begin.end(), 0);
  const auto at = [&](int i) -> const Block& { return blocks[i]; };
  std::sort(by_begin.begin(), by_begin.end(),
            [&](int a, int b) { return std::pair(at(a).begin, a) < std::pair(at(b).begin, b); });
  std::vector<std::vector<int>> result(blocks.size());
  Order alive;
  for (const int i : by_begin) {
    std::erase_if(alive, [&](int j) { return at(j).end < at(i).begin; });
    for (const int j : alive) {
      result[i].push_back(j);
      result[j].push_back(i);
    }
    alive.push_back(i);
  }
  return result;
}

class Placer {
 public:
  explicit Placer(const std::vector<Block>& blocks)
      : blocks_(blocks), neighbours_(neighbours(blocks)) {
    for (const auto& list : neighbours_) pairs_ += static_cast<double>(list.size());
  }

  double pairs() const { return pairs_; }

  Packing place(const Order& order) const {
    Packing packing;
    packing.offsets.assign(blocks_.size(), 0);
    std::vector<char> placed(blocks_.size(), 0);
    std::vector<std::pair<std::size_t, std::size_t>> taken;
    for (const int i : order) {
      const auto at = static_cast<std::size_t>(i);
      taken.clear();
      for (const int j : neighbours_[at])
        if (const auto other = static_cast<std::size_t>(j); placed[other])
          taken.emplace_back(packing.offsets[other], packing.offsets[other] + blocks_[other].bytes);
      std::sort(taken.begin(), taken.end());
      packing.offsets[at] = lowest_fit(taken, blocks_[at].bytes);
      packing.bytes = std::max(packing.bytes, packing.offsets[at] + blocks_[at].bytes);
      placed[at] = 1;
    }
    return packing;
  }

 private:
  static std::size_t lowest_fit(const std::vector<std::pair<std::size_t, std::size_t>>& taken,
                                std::size_t bytes) {
    std::size_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (begin >= offset + bytes) break;
      offset = std::max(offset, end);
    }
    return offset;
  }

  const std::vector<Block>& blocks_;
  std::vector<std::vector<int>> neighbours_;
  double pairs_ = 0;
};

template <class Key>
Order ordered_by(const std::vector<Block>& blocks, Key&& key) {
  Order order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return key(blocks[a]) > key(blocks[b]); });
  return order;
}

double length(const Block& block) { return block.end - block.begin + 1; }

/// Moves the blocks that end at the top of a packing, and what lies just under them, to the front.
Order top_first(const Order& order, const Packing& packing, const std::vector<Block>& blocks,
                std::size_t from) {
  Order result;
  result.reserve(order.size());
  const auto reaches = [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    return packing.offsets[at] + blocks[at].bytes > from;
  };
  std::copy_if(order.begin(), order.end(), std::back_inserter(result), reaches);
  std::copy_if(order.begin(), order.end(), std::back_inserter(result),
               [&](int i) { return !reaches(i); });
  return result;
}

}  // namespace

Packing pack(const std::vector<Block>& blocks, std::size_t enough) {
  Packing best;
  best.bound = largest_live(blocks);
  if (blocks.empty()) return best;
  const Placer placer(blocks);
  const std::size_t bound = best.bound;
  const std::size_t goal = std::max(bound, enough);
  best.bytes = SIZE_MAX;
  // Where even the bound passes what is enough, one order says how much is missing.
  const bool hopeless = enough > 0 && bound > enough;
  const int most = std::clamp(static_cast<int>(kMostPairs / (placer.pairs() + 1)), 2, kMostTries);
  const auto attempt = [&](const Order& order) {
    Packing packing = placer.place(order);
    packing.bound = bound;
    if (packing.bytes < best.bytes) best = packing;
    return packing;
  };
  const auto area = [](const Block& b) { return static_cast<double>(b.bytes) * length(b); };
  if (hopeless) {
    (void)attempt(ordered_by(blocks, area));
    return best;
  }
  const Order starts[] = {
      ordered_by(blocks, [](const Block& b) { return length(b); }),
      ordered_by(blocks, [](const Block& b) { return static_cast<double>(b.bytes); }),
      ordered_by(blocks, area),
      ordered_by(blocks, [](const Block& b) { return -static_cast<double>(b.begin); }),
      skyline_order(blocks, Prefer::longest),
      skyline_order(blocks, Prefer::area),
      skyline_order(blocks, Prefer::largest),
  };
  for (const Order& start : starts) {
    Order order = start;
    for (int round = 0; round < most && best.bytes > goal; ++round) {
      const Packing packing = attempt(order);
      if (packing.bytes <= goal) break;
      // An odd round lifts only what passes the bound, an even one also what lies close under it.
      const std::size_t from = round % 2 ? bound : bound - bound / static_cast<unsigned>(8 + round);
      Order next = top_first(order, packing, blocks, from);
      if (next == order) break;
      order = std::move(next);
    }
  }
  return best;
}

}  // namespace stowage::offload
