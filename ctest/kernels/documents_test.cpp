#include <gtest/gtest.h>

#include "ctest/kernels/operator_arrays.hpp"
#include "execution/error.hpp"
#include "kernels/documents/document_index.hpp"
#include "kernels/documents/later_tokens.hpp"

namespace stowage::kernels::test {
namespace {

Values index_of(const std::vector<std::int32_t>& cu_seqlens, std::int64_t tokens) {
  const Array starts = int32_array(cu_seqlens), index(Dtype::int32, {tokens});
  run(DocumentIndex{tokens, static_cast<std::int64_t>(cu_seqlens.size()) - 1},
      {.cu_seqlens = starts, .seq_idx = index});
  return index.values();
}

TEST(documents, index_counts_documents_that_ended) {
  EXPECT_EQ(index_of({0, 3, 5}, 5), (Values{0, 0, 0, 1, 1}));
}

TEST(documents, tail_is_the_last_document) {
  EXPECT_EQ(index_of({0, 2, 3, 3, 3}, 5), (Values{0, 0, 1, 4, 4}));
}

TEST(documents, all_empty_batch_is_all_tail) {
  EXPECT_EQ(index_of({0, 0, 0}, 3), (Values{2, 2, 2}));
}

TEST(documents, one_token) { EXPECT_EQ(index_of({0, 1}, 1), (Values{0})); }

TEST(documents, random_boundaries_match_a_plain_count) {
  Random random;
  const std::int64_t tokens = 10000;  // several blocks of the loop
  std::vector<std::int32_t> starts{0};
  while (starts.back() < tokens - 700)
    starts.push_back(starts.back() + static_cast<std::int32_t>(random.integer(0, 300)));
  starts.insert(starts.end(), 5, starts.back());
  const Values index = index_of(starts, tokens);
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::int64_t ended = 0;
    for (std::size_t c = 1; c < starts.size(); ++c) ended += starts[c] <= t;
    ASSERT_EQ(index[t], static_cast<double>(ended)) << "token " << t;
  }
}

TEST(documents, later_tokens_end_with_their_document) {
  const Array ids = int32_array({10, 11, -1, 13, 14, 15, 16}),
              seq_idx = int32_array({0, 0, 0, 1, 2, 2, 2}), later(Dtype::int32, {7});
  run(LaterTokens{7, 1}, {.ids = ids, .seq_idx = seq_idx, .later = later});
  EXPECT_EQ(later.values(), (Values{11, -1, -1, -1, 15, 16, -1}));
  run(LaterTokens{7, 2}, {.ids = ids, .seq_idx = seq_idx, .later = later});
  EXPECT_EQ(later.values(), (Values{-1, -1, -1, -1, 16, -1, -1}));
  run(LaterTokens{7, 9}, {.ids = ids, .seq_idx = seq_idx, .later = later});
  EXPECT_EQ(later.values(), Values(7, -1));
}

TEST(documents, wrong_dtype_is_named) {
  const Array starts = int32_array({0, 1}), index(Dtype::fp32, {1}, "seq_idx_of_slot_0");
  try {
    run(DocumentIndex{1, 1}, {.cu_seqlens = starts, .seq_idx = index});
    FAIL() << "accepted";
  } catch (const execution::Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("document_index: seq_idx"), std::string::npos) << message;
    EXPECT_NE(message.find("seq_idx_of_slot_0"), std::string::npos) << message;
    EXPECT_NE(message.find("int32"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace stowage::kernels::test
