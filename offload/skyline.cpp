#include "offload/skyline.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace stowage::offload {
namespace {

/// Steps [begin, end] up to which memory is filled to one height.
struct Gap {
  int begin;
  int end;
  std::size_t height;
};

class Skyline {
 public:
  Skyline(const std::vector<Block>& blocks, Prefer prefer) : blocks_(blocks), prefer_(prefer) {
    int last = 0;
    for (const Block& block : blocks) last = std::max(last, block.end);
    gaps_.push_back({0, last, 0});
    left_.resize(blocks.size());
    std::iota(left_.begin(), left_.end(), 0);
    std::stable_sort(left_.begin(), left_.end(),
                     [this](int a, int b) { return weight(a) > weight(b); });
  }

  std::vector<int> run() {
    std::vector<int> order;
    while (!left_.empty()) {
      const std::size_t lowest = lowest_gap();
      const auto fits = std::find_if(left_.begin(), left_.end(), [&](int i) {
        return block(i).begin >= gaps_[lowest].begin && block(i).end <= gaps_[lowest].end;
      });
      if (fits == left_.end()) {
        lift(lowest);
        continue;
      }
      order.push_back(*fits);
      fill(lowest, block(*fits));
      left_.erase(fits);
    }
    return order;
  }

 private:
  const Block& block(int i) const { return blocks_[i]; }

  double weight(int i) const {
    const double length = block(i).end - block(i).begin + 1;
    const auto bytes = static_cast<double>(block(i).bytes);
    return prefer_ == Prefer::longest   ? length
           : prefer_ == Prefer::largest ? bytes
                                        : length * bytes;
  }

  std::size_t lowest_gap() const {
    const auto found = std::min_element(
        gaps_.begin(), gaps_.end(), [](const Gap& a, const Gap& b) { return a.height < b.height; });
    return static_cast<std::size_t>(found - gaps_.begin());
  }

  /// Nothing fits: the gap is lost up to its lower neighbour.
  void lift(std::size_t at) {
    std::size_t height = SIZE_MAX;
    if (at > 0) height = gaps_[at - 1].height;
    if (at + 1 < gaps_.size()) height = std::min(height, gaps_[at + 1].height);
    gaps_[at].height = height;
    merge(at);
  }

  void fill(std::size_t at, const Block& with) {
    const Gap old = gaps_[at];
    std::vector<Gap> parts;
    if (old.begin < with.begin) parts.push_back({old.begin, with.begin - 1, old.height});
    parts.push_back({with.begin, with.end, old.height + with.bytes});
    if (with.end < old.end) parts.push_back({with.end + 1, old.end, old.height});
    const std::size_t middle = at + (old.begin < with.begin ? 1 : 0);
    gaps_.erase(gaps_.begin() + static_cast<std::ptrdiff_t>(at));
    gaps_.insert(gaps_.begin() + static_cast<std::ptrdiff_t>(at), parts.begin(), parts.end());
    merge(middle);
  }

  /// Joins a gap with neighbours of the same height.
  void merge(std::size_t at) {
    if (at + 1 < gaps_.size() && gaps_[at + 1].height == gaps_[at].height) {
      gaps_[at].end = gaps_[at + 1].end;
      gaps_.erase(gaps_.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    if (at > 0 && gaps_[at - 1].height == gaps_[at].height) {
      gaps_[at - 1].end = gaps_[at].end;
      gaps_.erase(gaps_.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  const std::vector<Block>& blocks_;
  Prefer prefer_;
  std::vector<Gap> gaps_;  ///< in order of time, without holes
  std::vector<int> left_;  ///< blocks to be placed, the preferred ones first
};

}  // namespace

std::vector<int> skyline_order(const std::vector<Block>& blocks, Prefer prefer) {
  return Skyline(blocks, prefer).run();
}

}  // namespace stowage::offload
