// Documents in a random order: every one is there once, whole, with its mask.
#include <gtest/gtest.h>

#include <set>

#include "ctest/inputs/loader_support.hpp"
#include "inputs/data/run_data.hpp"
#include "inputs/data/shuffled_source.hpp"

namespace stowage::inputs {
namespace {

using testing::CountingSource;
using testing::random_documents;
using testing::TemporaryFolder;
using testing::usage_error;

std::vector<std::int32_t> all_of(const TokenSource& source) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.tokens()));
  source.read(0, tokens);
  return tokens;
}

TEST(shuffled_source, has_every_document_once_and_whole) {
  const CountingSource source = random_documents(3, 2000, true);
  const TokenRange range{source.document_offsets()[10], source.document_offsets()[90] + 1};
  const auto other = shuffled(source, range, 7);
  ASSERT_EQ(other->tokens(), range.size());
  ASSERT_EQ(other->documents(), 81);  // the last one in part
  const std::vector<std::int32_t> tokens = all_of(*other);
  std::set<std::int32_t> begins;
  std::int64_t stays = 0;
  for (std::int64_t d = 0; d < other->documents(); ++d) {
    const std::int64_t begin = other->document_offsets()[d], end = other->document_offsets()[d + 1];
    const std::int32_t first = tokens[static_cast<std::size_t>(begin)];
    EXPECT_TRUE(std::ranges::binary_search(source.document_offsets(), first)) << d;
    begins.insert(first);
    stays += first == source.document_offsets()[10 + d] ? 1 : 0;
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(end - begin)), theirs = mask;
    other->read_mask(begin, mask);
    source.read_mask(first, theirs);
    EXPECT_EQ(mask, theirs) << d;
    for (std::int64_t t = begin; t < end; ++t)
      EXPECT_EQ(tokens[static_cast<std::size_t>(t)], first + (t - begin)) << d;
  }
  EXPECT_EQ(std::ssize(begins), other->documents());
  EXPECT_LT(stays, 20) << "documents that lie where they lay";
}

TEST(shuffled_source, any_part_is_read_as_the_whole_has_it) {
  const CountingSource source = random_documents(5, 300);
  const auto other = shuffled(source, {0, 300}, 1);
  const std::vector<std::int32_t> tokens = all_of(*other);
  for (std::size_t first = 0; first < tokens.size(); first += 7) {
    std::vector<std::int32_t> part(std::min<std::size_t>(40, tokens.size() - first));
    other->read(static_cast<std::int64_t>(first), part);
    EXPECT_TRUE(std::ranges::equal(part, std::span(tokens).subspan(first, part.size())));
  }
}

TEST(shuffled_source, the_order_follows_from_the_seed) {
  const CountingSource source = random_documents(9, 1000);
  const auto tokens = [&](std::uint64_t seed) {
    return all_of(*shuffled(source, {0, 1000}, seed));
  };
  EXPECT_EQ(tokens(1), tokens(1));
  EXPECT_NE(tokens(1), tokens(2));
}

/// What a run trains on, as all ranks have it, step after step.
std::vector<std::int32_t> trained_on(const std::string& path, int ranks, bool shuffles) {
  const std::string keys[] = {"model.pattern=*-",
                              "model.vocab_size=256",
                              "data.source=llmc",
                              "data.path=" + path,
                              "data.document_token=0",
                              "data.packing=first_fit",
                              "data.held_out_fraction=0.25",
                              "data.shuffle_documents=" + std::string(shuffles ? "true" : "false"),
                              "train.seq_length=8",
                              "train.micro_batch_size=1",
                              "train.global_batch_size=2"};
  const Deck deck = Deck::parse("", "test", keys);
  std::vector<std::int32_t> all;
  std::vector<Data> data;
  for (int rank = 0; rank < ranks; ++rank) data.push_back(open_data(deck, rank, ranks));
  for (std::int64_t step = 0; step < data[0].train->steps_per_pass(); ++step)
    for (Data& one : data) {
      for (std::int64_t m = 0; m < one.train->microbatches(); ++m) {
        const testing::Filling filling(*one.train, m, 8, 8);
        all.insert(all.end(), filling.tokens.begin(), filling.tokens.end());
      }
      one.train->advance();
    }
  return all;
}

TEST(shuffled_source, ranks_share_one_order_and_held_out_documents_stay_out) {
  const TemporaryFolder folder;
  std::string shard(1024, '\0');
  constexpr std::int32_t kDocuments = 60, kLength = 3;  // 0 d d
  for (const auto& [at, value] : {std::pair{0, 20240520}, {4, 1}, {8, kDocuments * kLength}})
    std::memcpy(shard.data() + at, &value, sizeof(value));
  for (char d = 1; d <= kDocuments; ++d)
    for (const char token : {'\0', d, d}) shard += {token, '\0'};
  const std::string path = folder.write("some.bin", shard);
  const std::vector<std::int32_t> one = trained_on(path, 1, true);
  EXPECT_EQ(one, trained_on(path, 2, true));
  EXPECT_NE(one, trained_on(path, 1, false));
  EXPECT_LE(*std::ranges::max_element(one), kDocuments * 3 / 4);
  const auto pairs_in_order = [](const std::vector<std::int32_t>& tokens) {
    std::int64_t pairs = 0;  // documents that follow their neighbour of the file in a sequence
    for (std::size_t i = 0; i + 4 < tokens.size(); i += 8)
      pairs += tokens[i + 4] == tokens[i + 1] + 1 ? 1 : 0;
    return pairs;
  };
  EXPECT_GT(pairs_in_order(trained_on(path, 1, false)), 15);
  EXPECT_LT(pairs_in_order(one), 5);
}

TEST(shuffled_source, documents_that_are_not_known_are_not_shuffled) {
  class Unknown final : public TokenSource {
   public:
    std::int64_t tokens() const override { return 2; }
    std::span<const std::int64_t> document_offsets() const override { return offsets_; }
    void read(std::int64_t, std::span<std::int32_t>) const override {}
    bool knows_documents() const override { return false; }
    std::string description() const override { return "unknown"; }
    std::vector<std::string> files() const override { return {}; }

   private:
    std::vector<std::int64_t> offsets_ = {0, 2};
  };
  const Unknown source;
  EXPECT_NE(usage_error([&] {
              (void)shuffled(source, {0, 2}, 1);
            }).find("data.document_token"),
            std::string::npos);
}

}  // namespace
}  // namespace stowage::inputs
