#include "inputs/data/packing.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "ctest/inputs/support.hpp"
#include "ctest/support/seed.hpp"

namespace stowage::inputs {
namespace {

using testing::expect_parts;
using testing::usage_error;
using Numbers = std::vector<std::int64_t>;

Numbers random_lengths(std::uint64_t seed, std::size_t count, std::int64_t room) {
  std::mt19937_64 random(seed);
  Numbers lengths(count);
  for (std::int64_t& length : lengths)
    length = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(room + 1));
  return lengths;
}

/// The definition, bin by bin.
Numbers plain_first_fit(const Numbers& lengths, Bin bin) {
  Numbers room, items, bins;
  for (const std::int64_t length : lengths) {
    std::size_t at = 0;
    while (at < room.size() && (room[at] < length || (bin.items > 0 && items[at] == bin.items)))
      ++at;
    if (at == room.size()) {
      room.push_back(bin.room);
      items.push_back(0);
    }
    room[at] -= length;
    ++items[at];
    bins.push_back(static_cast<std::int64_t>(at));
  }
  return bins;
}

Numbers plain_best_fit(const Numbers& lengths, Bin bin) {
  Numbers room, items, bins(lengths.size(), -1);
  for (std::size_t placed = 0; placed < lengths.size(); ++placed) {
    std::size_t next = lengths.size();
    for (std::size_t i = 0; i < lengths.size(); ++i)
      if (bins[i] < 0 && (next == lengths.size() || lengths[i] > lengths[next])) next = i;
    std::size_t at = room.size();
    for (std::size_t b = 0; b < room.size(); ++b) {
      if (room[b] < lengths[next] || (bin.items > 0 && items[b] == bin.items)) continue;
      if (at == room.size() || room[b] < room[at]) at = b;
    }
    if (at == room.size()) {
      room.push_back(bin.room);
      items.push_back(0);
    }
    room[at] -= lengths[next];
    ++items[at];
    bins[next] = static_cast<std::int64_t>(at);
  }
  return bins;
}

TEST(packing, follows_the_definitions_on_random_lengths) {
  const std::uint64_t seed = ctest::seed();
  for (const std::size_t count : {1, 2, 17, 300}) {
    for (const std::int64_t items : {0, 1, 3}) {
      const Numbers lengths = random_lengths(seed + count, count, 50);
      const Bin bin{50, items};
      EXPECT_EQ(pack(lengths, bin, Packing::first_fit), plain_first_fit(lengths, bin))
          << "seed " << seed << ", " << count << " items, " << items << " a bin";
      EXPECT_EQ(pack(lengths, bin, Packing::best_fit), plain_best_fit(lengths, bin))
          << "seed " << seed << ", " << count << " items, " << items << " a bin";
    }
  }
}

TEST(packing, best_fit_leaves_less_than_first_fit) {
  const Numbers lengths = {3, 6, 7, 4};
  EXPECT_EQ(pack(lengths, {10}, Packing::first_fit), (Numbers{0, 0, 1, 2}));
  EXPECT_EQ(pack(lengths, {10}, Packing::best_fit), (Numbers{0, 1, 0, 1}));
}

TEST(packing, nothing_and_full_items) {
  EXPECT_TRUE(pack({}, {10}, Packing::best_fit).empty());
  EXPECT_TRUE(pack({}, {10}, Packing::first_fit).empty());
  for (const Packing how : {Packing::first_fit, Packing::best_fit})
    EXPECT_EQ(pack(Numbers{10, 10, 0}, {10}, how).size(), 3U);
}

TEST(packing, what_cannot_be_is_refused) {
  EXPECT_THROW(pack(Numbers{11}, {10}, Packing::best_fit), execution::Error);
  EXPECT_THROW(pack(Numbers{1}, {10}, Packing::documents), execution::Error);
  expect_parts(usage_error([] { (void)packing("tight"); }), {"data.packing", "tight"});
  for (const char* word : {"documents", "first_fit", "best_fit", "none"})
    EXPECT_EQ(name(packing(word)), word);
}

}  // namespace
}  // namespace stowage::inputs
