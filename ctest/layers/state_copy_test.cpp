#include "layers/state/state_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "ctest/support/seed.hpp"
#include "forecast/plan/trainer_plan.hpp"
#include "tiny_model.hpp"

namespace stowage::layers {
namespace {

TEST(state_copy, every_piece_is_in_the_copy_once) {
  std::mt19937_64 random(ctest::seed());
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> memory(1 << 16);
    for (std::byte& byte : memory) byte = static_cast<std::byte>(random());
    std::vector<CopiedPiece> pieces;
    std::size_t begin = 0;
    while (true) {
      begin += random() % 3 == 0 ? random() % 5000 : random() % 64;
      const std::size_t bytes = random() % 4 == 0 ? 0 : random() % 3000;
      if (begin + bytes > memory.size()) break;
      pieces.push_back({begin, bytes});
      begin += bytes;
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    const CopyLayout layout(pieces);
    std::vector<std::byte> copy(layout.bytes);
    for (const CopyLayout::Span& span : layout.spans) {
      ASSERT_LE(span.to + span.bytes, copy.size());
      std::memcpy(copy.data() + span.to, memory.data() + span.from, span.bytes);
    }
    ASSERT_EQ(layout.at.size(), pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i)
      ASSERT_EQ(
          std::memcmp(copy.data() + layout.at[i], memory.data() + pieces[i].begin, pieces[i].bytes),
          0)
          << "piece " << i;
  }
}

/// Elements of the state that each rank of a grid speaks for, by tensor.
std::map<std::string, std::int64_t> all_spoken(const parallel::GridShape& shape, bool zero) {
  std::map<std::string, std::int64_t> elements;
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    forecast::TrainerOptions options =
        ctest::tiny_options(ctest::every_kind(), execution::Dtype::bf16);
    options.model.moe.experts = 4;  // ranks share sequences and experts evenly
    options.model.vocabulary = 14;
    options.model.attention.kv_heads = 1;  // and several have the same head and group
    options.model.mamba.groups = 1;
    options.step.sequence = options.step.tokens = 24;
    options.sharing.ranks = parallel::planned_ranks(shape, rank);
    options.sharing.zero = zero;
    const forecast::TrainerPlan plan(options);
    const Spoken spoken(plan.layout(), plan.model(), plan.options().sharing);
    std::int64_t bytes = 0;
    for (const execution::Bucket& bucket : plan.layout().buckets())
      for (const std::string& tensor : bucket.tensors) {
        std::int64_t count = 0;
        for (const execution::Range& range : spoken.of(tensor)) count += range.end - range.begin;
        elements[tensor] += count;
        if (plan.layout().whole(tensor).lifetime != execution::Lifetime::gradient)
          bytes += count * static_cast<std::int64_t>(execution::size_bytes(bucket.dtype));
      }
    EXPECT_GE(static_cast<std::int64_t>(plan.state_copy_bytes()), bytes) << "rank " << rank;
    EXPECT_LE(plan.state_copy_bytes(), plan.layout().bytes()) << "rank " << rank;
  }
  return elements;
}

TEST(state_copy, ranks_together_speak_for_the_state_once) {
  const std::map<std::string, std::int64_t> alone = all_spoken({}, false);
  EXPECT_GT(alone.size(), 20u);
  EXPECT_EQ(all_spoken(parallel::fit_grid(2), false), alone);
  EXPECT_EQ(all_spoken(parallel::fit_grid(4), true), alone);
  EXPECT_EQ(all_spoken(parallel::fit_grid(4, 1, 1, 2), true), alone);
  EXPECT_EQ(all_spoken(parallel::fit_grid(4, 1, 1, 1, 2), true), alone);
  EXPECT_EQ(all_spoken(parallel::fit_grid(2, 1, 2), false), alone);
  EXPECT_EQ(all_spoken(parallel::fit_grid(2, 2), false), alone);
  EXPECT_EQ(all_spoken(parallel::fit_grid(4, 2), true), alone);
}

}  // namespace
}  // namespace stowage::layers
