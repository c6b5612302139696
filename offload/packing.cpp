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

/// Pairs of blocks that live together, each counted twice.
double pairs(const std::vector<Block>& blocks) {
  std::vector<int> begins, ends;
  for (const Block& block : blocks) begins.push_back(block.begin), ends.push_back(block.end);
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  double sum = 0;
  for (std::size_t i = 0, over = 0; i < begins.size(); ++i) {
    while (ends[over] < begins[i]) ++over;
    sum += 2 * static_cast<double>(i - over);
  }
  return sum;
}

/// Places blocks one after the other.
class Placer {
 public:
  explicit Placer(const std::vector<Block>& blocks) : blocks_(blocks) {}

  Packing place(const Order& order) const {
    Packing packing;
    packing.offsets.assign(blocks_.size(), 0);
    std::vector<Placed> placed;  // by offset
    placed.reserve(blocks_.size());
    for (const int i : order) {
      const Block& block = blocks_[i];
      const std::size_t offset = lowest_fit(placed, block);
      const auto behind = std::ranges::upper_bound(placed, offset, {}, &Placed::offset);
      placed.insert(behind, {offset, block});
      packing.offsets[i] = offset;
      packing.bytes = std::max(packing.bytes, offset + block.bytes);
    }
    return packing;
  }

 private:
  struct Placed {
    std::size_t offset;
    Block block;
  };

  static std::size_t lowest_fit(const std::vector<Placed>& placed, const Block& block) {
    std::size_t offset = 0;
    for (const auto& [begin, other] : placed) {
      if (begin >= offset + block.bytes) break;
      if (other.begin <= block.end && block.begin <= other.end)
        offset = std::max(offset, begin + other.bytes);
    }
    return offset;
  }

  const std::vector<Block>& blocks_;
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
  if (enough == kUnbounded) {
    for (const Block& block : blocks) best.offsets.push_back(best.bytes), best.bytes += block.bytes;
    return best;
  }
  const Placer placer(blocks);
  const std::size_t bound = best.bound;
  const std::size_t goal = std::max(bound, enough);
  best.bytes = SIZE_MAX;
  // Where even the bound passes what is enough, one order says how much is missing.
  const bool hopeless = enough > 0 && bound > enough;
  const int most = std::clamp(static_cast<int>(kMostPairs / (pairs(blocks) + 1)), 2, kMostTries);
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
  const auto improve = [&](Order order) {
    for (int round = 0; round < most && best.bytes > goal; ++round) {
      const Packing packing = attempt(order);
      if (packing.bytes <= goal) break;
      // An odd round lifts only what passes the bound, an even one also what lies close under it.
      const std::size_t from = round % 2 ? bound : bound - bound / static_cast<unsigned>(8 + round);
      Order next = top_first(order, packing, blocks, from);
      if (next == order) break;
      order = std::move(next);
    }
  };
  improve(ordered_by(blocks, [](const Block& b) { return length(b); }));
  improve(ordered_by(blocks, [](const Block& b) { return static_cast<double>(b.bytes); }));
  improve(ordered_by(blocks, area));
  improve(ordered_by(blocks, [](const Block& b) { return -static_cast<double>(b.begin); }));
  for (const Prefer prefer : {Prefer::longest, Prefer::area, Prefer::largest})
    if (best.bytes > goal) improve(skyline_order(blocks, prefer));
  return best;
}

}  // namespace stowage::offload
