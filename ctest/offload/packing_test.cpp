#include "offload/packing.hpp"

#include <gtest/gtest.h>

#include <random>

#include "ctest/support/seed.hpp"

namespace stowage::offload {
namespace {

constexpr int kSteps = 200;  ///< that blocks which wrap have

bool meet(const Block& a, const Block& b) {
  if (!a.wraps() && !b.wraps()) return a.begin <= b.end && b.begin <= a.end;
  const auto lives = [](const Block& block, int step) {
    return block.wraps() ? step >= block.begin || step <= block.end
                         : step >= block.begin && step <= block.end;
  };
  for (int step = 0; step < kSteps; ++step)
    if (lives(a, step) && lives(b, step)) return true;
  return false;
}

void expect_disjoint(const std::vector<Block>& blocks, const Packing& packing) {
  for (std::size_t i = 0; i < blocks.size(); ++i)
    for (std::size_t j = i + 1; j < blocks.size(); ++j) {
      const bool together = meet(blocks[i], blocks[j]);
      const bool overlap = packing.offsets[i] < packing.offsets[j] + blocks[j].bytes &&
                           packing.offsets[j] < packing.offsets[i] + blocks[i].bytes;
      ASSERT_FALSE(together && overlap) << "blocks " << i << " and " << j;
    }
}

TEST(packing, nothing_takes_nothing) { EXPECT_EQ(pack({}).bytes, 0U); }

TEST(packing, blocks_that_never_meet_share_bytes) {
  const std::vector<Block> blocks{{0, 1, 4096}, {2, 3, 4096}, {4, 9, 2048}};
  const Packing packing = pack(blocks);
  EXPECT_EQ(packing.bytes, 4096U);
  expect_disjoint(blocks, packing);
}

/// Of so many layers; with thousands, blocks are looked for by their time.
void expect_packed_stack(int layers) {
  std::vector<Block> blocks;
  for (int i = 0; i < layers; ++i) {
    blocks.push_back({3 * i, 6 * layers - 3 * i, 8192});                    // saved
    blocks.push_back({3 * i + 1, 3 * i + 2, 32768});                        // forward scratch
    blocks.push_back({6 * layers - 3 * i, 6 * layers - 3 * i + 2, 65536});  // backward scratch
  }
  const Packing packing = pack(blocks);
  expect_disjoint(blocks, packing);
  EXPECT_EQ(packing.bytes, packing.bound);
}

TEST(packing, meets_the_bound_on_a_forward_backward_stack) {
  for (const int layers : {40, 300, 700, 1500}) expect_packed_stack(layers);
}

TEST(packing, what_cannot_be_enough_is_packed_once) {
  std::vector<Block> blocks;
  for (int i = 0; i < 200; ++i)
    blocks.push_back({i % 37, i % 37 + i % 11, 1024 * static_cast<std::size_t>(1 + i % 29)});
  const Packing searched = pack(blocks);
  const Packing once = pack(blocks, searched.bound - 1);
  expect_disjoint(blocks, once);
  EXPECT_EQ(once.bound, searched.bound);
  EXPECT_GE(once.bytes, searched.bytes);
  EXPECT_LE(once.bytes, 2 * once.bound);
}

TEST(packing, without_a_bound_no_block_shares_bytes) {
  const Packing packing = pack({{0, 1, 4096}, {2, 3, 4096}, {4, 9, 2048}}, kUnbounded);
  EXPECT_EQ(packing.offsets, (std::vector<std::size_t>{0, 4096, 8192}));
  EXPECT_EQ(packing.bytes, 10240U);
  EXPECT_EQ(packing.bound, 4096U);
}

TEST(packing, random_blocks_never_overlap_and_stay_near_the_bound) {
  std::mt19937_64 random(ctest::seed());
  for (int round = 0; round < 50; ++round) {
    std::vector<Block> blocks;
    const int count = 1 + static_cast<int>(random() % 120);
    for (int i = 0; i < count; ++i) {
      const int begin = static_cast<int>(random() % 100);
      blocks.push_back(
          {begin, begin + static_cast<int>(random() % 30), 1024 * (1 + random() % 64)});
    }
    const Packing packing = pack(blocks);
    expect_disjoint(blocks, packing);
    EXPECT_GE(packing.bytes, packing.bound);
    // First fit in order of start needs at most 6 times the bound (Kierstead 1991); far less here.
    EXPECT_LE(packing.bytes, packing.bound * 2);
  }
}

TEST(packing, blocks_that_wrap_keep_apart_from_both_ends) {
  std::mt19937_64 random(ctest::seed());
  for (int round = 0; round < 50; ++round) {
    std::vector<Block> blocks;
    for (int i = 0; i < 300; ++i) {
      const int begin = static_cast<int>(random() % 160);
      blocks.push_back({begin, begin + static_cast<int>(random() % 39), 1024 * (1 + random() % 9)});
    }
    for (int i = 0; i < 20; ++i)
      blocks.push_back({100 + static_cast<int>(random() % 99), static_cast<int>(random() % 99),
                        1024 * (1 + random() % 9)});
    const Packing packing = pack(blocks);
    expect_disjoint(blocks, packing);
    EXPECT_GE(packing.bytes, packing.bound);
    EXPECT_LE(packing.bytes, packing.bound * 2);
  }
}

}  // namespace
}  // namespace stowage::offload
