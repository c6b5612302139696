#include "offload/packing.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>

#include "offload/skyline.hpp"

namespace stowage::offload {
namespace {

using Order = std::vector<int>;

constexpr int kMostTries = 60;  ///< from each start
/// Pairs of blocks that the tries of one start may look at: some tenths of a second.
constexpr double kMostPairs = 1e8;
constexpr double kLong = 1e9;  ///< steps: more than any plan has

int last_of(const std::vector<Block>& blocks) {
  int last = 0;
  for (const Block& block : blocks) last = std::max({last, block.begin, block.end});
  return last;
}

std::size_t largest_live(const std::vector<Block>& blocks) {
  std::vector<std::size_t> live(static_cast<std::size_t>(last_of(blocks)) + 2, 0);
  for (const Block& block : blocks) {
    live[block.begin] += block.bytes;
    live[static_cast<std::size_t>(block.end) + 1] -= block.bytes;
    if (block.wraps()) live.front() += block.bytes;
  }
  std::size_t sum = 0;
  std::size_t most = 0;
  for (const std::size_t change : live) most = std::max(most, sum += change);
  return most;
}

/// The same where those that wrap end with the last step: to find an order.
std::vector<Block> unwrapped(std::vector<Block> blocks) {
  const int last = last_of(blocks);
  for (Block& block : blocks)
    if (block.wraps()) block.end = last;
  return blocks;
}

/// Pairs of blocks that live together, each counted twice.
double pairs(const std::vector<Block>& blocks) {
  std::vector<int> begins, ends;
  for (const Block& block : blocks)
    begins.push_back(block.begin), ends.push_back(std::max(block.begin, block.end));
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  double sum = 0;
  for (std::size_t i = 0, over = 0; i < begins.size(); ++i) {
    while (ends[over] < begins[i]) ++over;
    sum += 2 * static_cast<double>(i - over);
  }
  return sum;
}

/// The blocks that have been placed and live in one interval of steps.
class Interval {
 public:
  Interval(int begin, int end) : begin_(begin), end_(end) {}

  void add(const Block& block, std::size_t offset) {
    const Bytes bytes{offset, offset + block.bytes};
    take(touched_, bytes);
    if (lives_throughout(block))
      take(taken_, bytes);
    else
      blocks_.insert(std::ranges::upper_bound(blocks_, offset, {}, &Placed::offset),
                     {offset, block});
  }

  struct Cursor {
    std::size_t bytes = 0, block = 0;
  };

  /// Raises `offset` past every placed block that `block` would overlap there, from the cursor on.
  /// @return false if the cursor did not advance: nothing more is in the way
  bool pass(const Block& block, Cursor& at, std::size_t& offset) const {
    Cursor now = at;  // in registers: most of a prediction's time is spent here
    std::size_t free = offset;
    const bool throughout = lives_throughout(block);  // meets all that live in here
    const std::vector<Bytes>& taken = throughout ? touched_ : taken_;
    for (; now.bytes < taken.size() && taken[now.bytes].begin < free + block.bytes; ++now.bytes)
      free = std::max(free, taken[now.bytes].end);
    if (!throughout)
      for (; now.block < blocks_.size() && blocks_[now.block].offset < free + block.bytes;
           ++now.block) {
        const auto& [begin, other] = blocks_[now.block];
        if (other.meets(block)) free = std::max(free, begin + other.bytes);
      }
    const bool moved = now.bytes != at.bytes || now.block != at.block;
    at = now;
    offset = free;
    return moved;
  }

 private:
  struct Bytes {
    std::size_t begin, end;
  };
  struct Placed {
    std::size_t offset;
    Block block;
  };

  bool lives_throughout(const Block& block) const {
    return block.wraps() ? block.begin <= begin_ || block.end >= end_
                         : block.begin <= begin_ && block.end >= end_;
  }

  /// Adds bytes to rising ranges; those that touch become one.
  static void take(std::vector<Bytes>& ranges, Bytes bytes) {
    const auto first = std::ranges::lower_bound(ranges, bytes.begin, {}, &Bytes::end);
    auto last = first;
    for (; last != ranges.end() && last->begin <= bytes.end; ++last)
      bytes = {std::min(bytes.begin, last->begin), std::max(bytes.end, last->end)};
    if (first == last) {
      ranges.insert(first, bytes);
    } else {
      *first = bytes;
      ranges.erase(first + 1, last);
    }
  }

  int begin_, end_;
  std::vector<Bytes> taken_;    ///< through the whole interval, rising
  std::vector<Bytes> touched_;  ///< at any step of it, rising
  std::vector<Placed> blocks_;  ///< in part of it, by offset
};

/// Places blocks one after the other, each at the lowest offset that is free while it lives. Placed
/// blocks are kept by interval: of thousands of layers most blocks never live together.
class Placer {
 public:
  explicit Placer(const std::vector<Block>& blocks) : blocks_(blocks) {
    const int last = last_of(blocks);
    width_ = last / static_cast<int>(std::clamp<std::size_t>(blocks.size() / 100, 1, 1024)) + 1;
    for (int begin = 0; begin <= last; begin += width_)
      intervals_.emplace_back(begin, begin + width_ - 1);
  }

  Packing place(const Order& order) const {
    Packing packing;
    packing.offsets.assign(blocks_.size(), 0);
    std::vector<Interval> intervals = intervals_;
    std::vector<Interval::Cursor> at;
    std::vector<Interval*> lived;
    for (const int i : order) {
      const Block& block = blocks_[i];
      const auto first = static_cast<std::size_t>(block.begin / width_);
      const std::size_t behind = static_cast<std::size_t>(block.end / width_) + 1;
      lived.clear();
      const std::size_t until = block.wraps() ? std::min(first, behind) + intervals.size() : behind;
      for (std::size_t t = first; t < until; ++t) lived.push_back(&intervals[t % intervals.size()]);
      at.assign(lived.size(), {});
      std::size_t& offset = packing.offsets[i];
      for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t t = 0; t < lived.size(); ++t)
          moved = lived[t]->pass(block, at[t], offset) || moved;
      }
      for (Interval* interval : lived) interval->add(block, offset);
      packing.bytes = std::max(packing.bytes, offset + block.bytes);
    }
    return packing;
  }

 private:
  const std::vector<Block>& blocks_;
  int width_ = 1;                    ///< steps of an interval
  std::vector<Interval> intervals_;  ///< empty ones; a single one below two hundred blocks
};

template <class Key>
Order ordered_by(const std::vector<Block>& blocks, Key&& key) {
  Order order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return key(blocks[a]) > key(blocks[b]); });
  return order;
}

/// Blocks that wrap come before all others.
double length(const Block& block) { return block.wraps() ? kLong : block.end - block.begin + 1; }

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
  const double tries = kMostPairs / (pairs(blocks) + 1);
  const int most = std::clamp(static_cast<int>(tries), 2, kMostTries);
  // With thousands of layers one try alone passes that limit: all seven starts share these tries.
  int left = std::max(2, static_cast<int>(7 * tries));
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
    for (int round = 0; round < most && best.bytes > goal && left-- > 0; ++round) {
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
    if (best.bytes > goal) improve(skyline_order(unwrapped(blocks), prefer));
  return best;
}

}  // namespace stowage::offload
