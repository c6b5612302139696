#include "inputs/data/packing.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <set>

#include "execution/error.hpp"

namespace stowage::inputs {

namespace {

constexpr std::array<std::string_view, 4> kWords = {"documents", "first_fit", "best_fit", "none"};

/// The room left in bins, as a binary tree of maxima: finds the lowest bin with enough of it.
class Rooms {
 public:
  explicit Rooms(std::size_t bins) : leaves_(std::bit_ceil(bins)), most_(2 * leaves_, kClosed) {}

  void set(std::size_t bin, std::int64_t room) {
    std::size_t node = leaves_ + bin;
    most_[node] = room;
    while ((node /= 2) > 0) most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
  }
  /// The lowest bin with at least `length` of room; the number of leaves if there is none.
  std::size_t lowest(std::int64_t length) const {
    if (most_[1] < length) return leaves_;
    std::size_t node = 1;
    while (node < leaves_) node = most_[2 * node] >= length ? 2 * node : 2 * node + 1;
    return node - leaves_;
  }

 private:
  static constexpr std::int64_t kClosed = -1;  // not opened yet, or full: takes no item
  std::size_t leaves_;
  std::vector<std::int64_t> most_;  // (2 leaves), node i has children 2 i and 2 i + 1
};

/// Room and items of the bins opened so far.
struct Opened {
  std::vector<std::int64_t> room, items;

  std::size_t open(const Bin& bin) {
    room.push_back(bin.room);
    items.push_back(0);
    return room.size() - 1;
  }
  /// Puts an item in; false if the bin takes no more.
  bool add(std::size_t bin, std::int64_t length, const Bin& bounds) {
    room[bin] -= length;
    return ++items[bin] != bounds.items;
  }
};

std::vector<std::int64_t> first_fit(std::span<const std::int64_t> lengths, const Bin& bin) {
  std::vector<std::int64_t> bins(lengths.size());
  Opened opened;
  Rooms rooms(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::size_t at = rooms.lowest(lengths[i]);
    if (at >= opened.room.size()) at = opened.open(bin);
    const bool more = opened.add(at, lengths[i], bin);
    rooms.set(at, more ? opened.room[at] : -1);
    bins[i] = static_cast<std::int64_t>(at);
  }
  return bins;
}

std::vector<std::int64_t> best_fit(std::span<const std::int64_t> lengths, const Bin& bin) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::int64_t> bins(lengths.size());
  Opened opened;
  std::set<std::pair<std::int64_t, std::size_t>> by_room;
  for (const std::size_t i : order) {
    const auto found = by_room.lower_bound({lengths[i], 0});
    std::size_t at = 0;
    if (found == by_room.end()) {
      at = opened.open(bin);
    } else {
      at = found->second;
      by_room.erase(found);
    }
    if (opened.add(at, lengths[i], bin)) by_room.emplace(opened.room[at], at);
    bins[i] = static_cast<std::int64_t>(at);
  }
  return bins;
}

}  // namespace

Packing packing(std::string_view word) {
  const auto found = std::ranges::find(kWords, word);
  if (found == kWords.end()) execution::throw_usage("data.packing = \"{}\" is not known", word);
  return static_cast<Packing>(found - kWords.begin());
}

std::string_view name(Packing packing) { return kWords[static_cast<std::size_t>(packing)]; }

std::vector<std::int64_t> pack(std::span<const std::int64_t> lengths, Bin bin, Packing packing) {
  for (const std::int64_t length : lengths)
    STOWAGE_ASSERT(0 <= length && length <= bin.room, "an item of {} in bins of {}", length,
                   bin.room);
  STOWAGE_ASSERT(packs_whole(packing), "only first_fit and best_fit fill bins");
  if (lengths.empty()) return {};
  return packing == Packing::first_fit ? first_fit(lengths, bin) : best_fit(lengths, bin);
}

}  // namespace stowage::inputs
