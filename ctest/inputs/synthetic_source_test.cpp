#include <gtest/gtest.h>

#include <cmath>

#include "ctest/inputs/support.hpp"
#include "ctest/support/seed.hpp"
#include "execution/philox.hpp"
#include "inputs/data/token_source.hpp"

namespace stowage::inputs {
namespace {

SourceOptions options(std::uint64_t seed) {
  return {
      .kind = SourceKind::synthetic, .vocab_size = 1000, .seed = seed, .synthetic_tokens = 50000};
}

std::vector<std::int32_t> read(const TokenSource& source, std::int64_t first, std::size_t count) {
  std::vector<std::int32_t> tokens(count, -1);
  source.read(first, tokens);
  return tokens;
}

TEST(synthetic_source, a_token_depends_on_its_position_only) {
  const std::uint64_t seed = ctest::seed();
  const auto source = open_source(options(seed));
  const std::vector<std::int32_t> all = read(*source, 0, 50000);
  for (std::size_t first = 0; first < 20; ++first) {
    for (std::size_t count = 0; count < 20; ++count) {
      const auto part = read(*source, static_cast<std::int64_t>(first), count);
      EXPECT_TRUE(
          std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(first)));
    }
  }
  EXPECT_NE(all, read(*open_source(options(seed + 1)), 0, 50000));
}

// A seed has the same documents in every version: lengths are the first words of their blocks.
TEST(synthetic_source, documents_of_a_seed_stay) {
  const std::uint64_t seed = ctest::seed();
  for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{}, {7, 100, 33}}) {
    SourceOptions some = options(seed);
    some.synthetic_document_length = lengths.empty() ? 50 : 0;
    some.synthetic_lengths = lengths;
    const auto source = open_source(some);
    const auto offsets = source->document_offsets();
    ASSERT_GT(offsets.size(), 100U);
    for (std::uint64_t document = 1; document < 100; ++document) {
      const auto word =
          execution::philox(seed, execution::stream_of("inputs/synthetic/lengths"), document)
              .word[0];
      EXPECT_EQ(offsets[document] - offsets[document - 1],
                lengths.empty() ? 1 + execution::scale_to(word, 99)
                                : lengths[execution::scale_to(word, 3)]);
    }
  }
}

// Uniform: the mean within 6 standard errors, every token in the vocabulary.
TEST(synthetic_source, is_uniform_over_the_vocabulary) {
  const std::uint64_t seed = ctest::seed();
  const auto source = open_source(options(seed));
  double sum = 0;
  for (const std::int32_t token : read(*source, 0, 50000)) {
    ASSERT_TRUE(token >= 0 && token < 1000);
    sum += token;
  }
  EXPECT_NEAR(sum / 50000, 499.5, 6 * 1000 / std::sqrt(12.0 * 50000)) << "seed " << seed;
}

TEST(synthetic_source, documents_have_the_mean_length) {
  const std::uint64_t seed = ctest::seed();
  SourceOptions with_documents = options(seed);
  EXPECT_EQ(open_source(with_documents)->documents(), 1);
  with_documents.synthetic_document_length = 50;
  const auto source = open_source(with_documents);
  const auto offsets = source->document_offsets();
  EXPECT_EQ(offsets.front(), 0);
  EXPECT_EQ(offsets.back(), 50000);
  for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
    const std::int64_t length = offsets[d + 1] - offsets[d];
    EXPECT_TRUE(length >= 1 && length < 100);
  }
  // 1000 documents of deviation 100 / sqrt(12): 6 standard errors of their sum.
  EXPECT_NEAR(static_cast<double>(source->documents()), 1000, 6 * 0.577 * std::sqrt(1000.0))
      << "seed " << seed;
  with_documents.synthetic_document_length = 1;
  EXPECT_EQ(open_source(with_documents)->documents(), 50000);
}

TEST(synthetic_source, documents_have_the_lengths_of_a_list) {
  const std::uint64_t seed = ctest::seed();
  SourceOptions with_lengths = options(seed);
  with_lengths.synthetic_lengths = {7, 7, 7, 31};
  const auto source = open_source(with_lengths);
  const auto offsets = source->document_offsets();
  EXPECT_EQ(offsets.back(), 50000);
  double shorts = 0;
  const std::size_t whole = offsets.size() - 2;  // the last one may be cut
  for (std::size_t d = 0; d < whole; ++d) {
    const std::int64_t length = offsets[d + 1] - offsets[d];
    EXPECT_TRUE(length == 7 || length == 31) << length;
    shorts += length == 7 ? 1 : 0;
  }
  const auto all = static_cast<double>(whole);
  EXPECT_NEAR(shorts / all, 0.75, 6 * std::sqrt(0.75 * 0.25 / all)) << "seed " << seed;
}

}  // namespace
}  // namespace stowage::inputs
