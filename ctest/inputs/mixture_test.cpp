#include "inputs/data/mixture.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "ctest/inputs/loader_support.hpp"
#include "inputs/data/loader.hpp"

namespace stowage::inputs {
namespace {

using testing::CountingSource;

TEST(mixture, shares_are_those_of_the_weights) {
  constexpr std::int64_t kSamples = 1'000'000;
  for (const std::vector<double>& weights : {std::vector<double>{1, 1},
                                             {0.7, 0.3},
                                             {3, 1, 4, 1, 5, 9, 2, 6},
                                             {1e-9, 1},
                                             {1, 1e6, 1},
                                             {0.1, 0.2, 0.3, 0.4}}) {
    const Mixture mixture(weights);
    const double sum = std::reduce(weights.begin(), weights.end());
    std::vector<std::int64_t> counts(weights.size());
    double farthest = 0;
    for (std::int64_t n = 0; n < kSamples; ++n) {
      const auto [source, index] = mixture.at(n);
      ASSERT_EQ(index, counts[source]++);  // none is left out, none comes twice
      const double share = mixture.share(source) * static_cast<double>(n + 1);
      farthest = std::max(farthest, std::abs(static_cast<double>(counts[source]) - share));
    }
    for (std::size_t i = 0; i < weights.size(); ++i)
      EXPECT_NEAR(static_cast<double>(counts[i]) / kSamples, weights[i] / sum, 1e-3);
    EXPECT_LT(farthest, static_cast<double>(weights.size()));  // at any time, in samples
  }
}

TEST(mixture, of_one_source_is_its_own_order) {
  const Mixture one(std::vector<double>{0.3});
  for (const std::int64_t n : {0L, 1L, 65536L, 1'234'567'890'123L}) {
    EXPECT_EQ(one.at(n).source, 0);
    EXPECT_EQ(one.at(n).index, n);
  }
}

/// Tokens from 1000 on.
class Shifted final : public TokenSource {
 public:
  explicit Shifted(const TokenSource& of) : of_(of) {}
  std::int64_t tokens() const override { return of_.tokens(); }
  std::span<const std::int64_t> document_offsets() const override { return of_.document_offsets(); }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    of_.read(first, out);
    for (std::int32_t& token : out) token += 1000;
  }
  std::string description() const override { return "shifted"; }
  std::vector<std::string> files() const override { return {}; }

 private:
  const TokenSource& of_;
};

class mixed_loader : public ::testing::Test {
 protected:
  Loader loader(int rank = 0, int ranks = 1) const {
    return Loader({{&many_, {0, 230}, 1}, {&few_, {0, 60}, 3}}, {.sequences = {.seq_length = 10},
                                                                 .micro_batch_size = 1,
                                                                 .global_batch_size = 4,
                                                                 .rank = rank,
                                                                 .ranks = ranks,
                                                                 .seed = 5});
  }
  /// First tokens of the sequences of a step, over all ranks.
  static std::vector<std::int32_t> firsts(const Loader& loader) {
    std::vector<std::int32_t> all;
    for (std::int64_t m = 0; m < loader.microbatches(); ++m)
      all.push_back(testing::Filling(loader, m, 10, loader.max_documents()).tokens[0]);
    return all;
  }

  const CountingSource many_{{0, 95, 230}}, few_documents_{{0, 60}};
  const Shifted few_{few_documents_};
};

TEST_F(mixed_loader, serves_each_source_in_passes_of_its_own) {
  Loader all = loader();
  EXPECT_EQ(all.samples(), 23 + 6);
  EXPECT_EQ(all.share(1), 0.75);
  std::map<std::int32_t, int> seen;
  const std::int64_t targets = all.global_targets();
  EXPECT_EQ(all.global_tokens(), 40);
  EXPECT_GT(targets, 35);
  for (int step = 0; step < 4; ++step, all.advance())
    for (const std::int32_t first : firsts(all)) ++seen[first];
  // 16 samples: 12 of the six sequences of one, twice each; 4 others of the other.
  for (std::int32_t first = 1000; first < 1060; first += 10) EXPECT_EQ(seen[first], 2) << first;
  EXPECT_EQ(seen.size(), 6 + 4);
}

TEST_F(mixed_loader, counted_targets_are_of_their_source) {
  Loader all = loader();
  int of_none = 0;
  for (int step = 0; step < 10; ++step, all.advance())
    for (std::int64_t m = 0; m < all.microbatches(); ++m) {
      const testing::Filling found(all, m, 10, all.max_documents());
      for (std::size_t t = 0; t < 10; ++t) {
        const std::int32_t target = found.targets[t];
        EXPECT_EQ(found.sources[t], target == kNoTarget ? kNoTarget : target >= 1000 ? 1 : 0);
        of_none += target == kNoTarget ? 1 : 0;
      }
    }
  EXPECT_GT(of_none, 0);
}

TEST_F(mixed_loader, order_is_the_same_on_any_ranks_and_after_a_restart) {
  Loader whole = loader();
  std::vector<std::vector<std::int32_t>> steps;
  for (int step = 0; step < 40; ++step, whole.advance()) steps.push_back(firsts(whole));
  for (const int ranks : {2, 4})
    for (const int from : {0, 7, 23}) {
      std::vector<Loader> parts;
      for (int rank = 0; rank < ranks; ++rank) parts.push_back(loader(rank, ranks));
      Loader before = loader();
      for (int step = 0; step < from; ++step) before.advance();
      for (Loader& part : parts) part.seek(before.position());
      for (int step = from; step < 40; ++step) {
        std::vector<std::int32_t> together;
        for (Loader& part : parts) {
          for (const std::int32_t first : firsts(part)) together.push_back(first);
          part.advance();
        }
        ASSERT_EQ(together, steps[static_cast<std::size_t>(step)]) << ranks << " " << step;
      }
    }
}

TEST_F(mixed_loader, tokens_of_a_pass_are_those_of_the_shares) {
  EXPECT_EQ(loader().packing().positions, 290);
  EXPECT_EQ(loader().packing().tokens, 290);
  EXPECT_EQ(loader().packing().documents, 3);
  EXPECT_EQ(loader().max_documents(), 2);
}

TEST_F(mixed_loader, tokens_in_no_sequence_are_those_of_all_sources) {
  const Loader loader(
      {{&many_, {0, 229}, 1}, {&few_, {0, 58}, 3}},
      {.sequences = {.seq_length = 10}, .micro_batch_size = 1, .global_batch_size = 4});
  EXPECT_EQ(loader.packing().dropped_tokens, 9 + 8);
}

}  // namespace
}  // namespace stowage::inputs
