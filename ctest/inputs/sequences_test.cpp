#include "inputs/data/sequences.hpp"

#include <gtest/gtest.h>

#include <set>

#include "ctest/inputs/loader_support.hpp"
#include "ctest/support/seed.hpp"

namespace stowage::inputs {
namespace {

using testing::CountingSource;
using testing::expect_parts;
using testing::Filling;
using testing::usage_error;

constexpr std::int64_t kLength = 12;

/// Documents of 0, 1, T, T + 1 and any other number of tokens; the first has one token, so that a
/// range behind it holds no token 0, which padding is made of.
CountingSource hard_documents(std::uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> offsets = {0, 1};
  const std::int64_t lengths[] = {0, 1, kLength, kLength + 1};
  for (int i = 0; i < count; ++i) {
    const bool special = random() % 2 == 0;
    const std::int64_t other = static_cast<std::int64_t>(random() % (3 * kLength));
    offsets.push_back(offsets.back() + (special ? lengths[random() % 4] : other));
  }
  offsets.push_back(offsets.back() + 5);
  return CountingSource(std::move(offsets));
}

/// Every combination of what packing whole documents can be asked for.
std::vector<SequenceOptions> all_options() {
  std::vector<SequenceOptions> all;
  for (const Packing packing : {Packing::first_fit, Packing::best_fit})
    for (const bool split : {true, false})
      for (const std::int64_t window : {0, 7})
        for (const std::int64_t multiple : {1, 4})
          for (const std::int64_t most : {0, 2})
            all.push_back({kLength, packing, window, split, multiple, most});
  return all;
}

/// Pairs of positions in pieces of a sequence.
std::int64_t pairs(const Sequences& sequences, std::span<const Piece> pieces) {
  std::int64_t sum = 0;
  for (const Piece& piece : pieces)
    sum += sequences.padded(piece) * (sequences.padded(piece) + 1) / 2;
  return sum;
}

/// Checks microbatches of two sequences against the stream they were made from.
class PackedPass {
 public:
  PackedPass(const CountingSource& source, const SequenceOptions& options, std::uint64_t seed)
      : source_(source),
        options_(options),
        end_(source.tokens() - 2),  // within the last document
        loader_(
            source, {1, end_},
            {.sequences = options, .micro_batch_size = 2, .global_batch_size = 2, .seed = seed}) {}

  void check() {
    std::int64_t served = 0;
    const std::int64_t steps = (loader_.samples() + 1) / 2;
    for (std::int64_t step = 0; step < steps; ++step, loader_.advance()) {
      const Filling filling(loader_, 0, 2 * kLength, loader_.max_documents());
      EXPECT_EQ(filling.filled.targets,
                2 * kLength - std::ranges::count(filling.targets, kNoTarget));
      EXPECT_EQ(filling.filled.targets, loader_.global_targets());
      EXPECT_EQ(filling.filled.documents, loader_.documents_of(0));
      EXPECT_LE(filling.filled.documents, loader_.max_documents());
      most_pairs_ = std::max(most_pairs_, pairs_of_both(filling));
      if (options_.max_documents > 0) {
        EXPECT_LE(filling.filled.documents, 2 * options_.max_documents);
      }
      for (std::int64_t d = 0; d < filling.filled.documents; ++d)
        served += check_document(filling, static_cast<std::size_t>(d));
      check_tail(filling);
    }
    const PackingSummary& summary = loader_.packing();
    EXPECT_EQ(summary.tokens + summary.dropped_tokens, end_ - 1);
    EXPECT_EQ(std::ssize(seen_), summary.tokens);
    if (loader_.samples() % 2 == 0) {
      EXPECT_EQ(served, summary.tokens);
    }
    EXPECT_EQ(summary.positions, loader_.samples() * kLength);
    check_pairs();
  }

 private:
  /// Two sequences have as many pairs as the one with most has twice, or fewer.
  void check_pairs() const {
    const Sequences& sequences = loader_.sequences().front();
    std::vector<Piece> room;
    std::int64_t most = 0;
    for (std::int64_t s = 0; s < sequences.count(); ++s)
      most = std::max(most, pairs(sequences, sequences.pieces(s, room)));
    EXPECT_EQ(loader_.max_pairs(), 2 * most);
    EXPECT_LE(most_pairs_, 2 * most);
    EXPECT_GE(most_pairs_, most);
  }

  static std::int64_t pairs_of_both(const Filling& filling) {
    std::int64_t sum = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(filling.filled.documents); ++d) {
      const std::int64_t length = filling.cu_seqlens[d + 1] - filling.cu_seqlens[d];
      sum += length * (length + 1) / 2;
    }
    return sum;
  }

  std::int64_t document_of(std::int64_t token) const {
    return std::ranges::upper_bound(source_.document_offsets(), token) -
           source_.document_offsets().begin() - 1;
  }

  /// One entry of cu_seqlens; returns its tokens.
  std::int64_t check_document(const Filling& filling, std::size_t d) {
    const auto begin = static_cast<std::size_t>(filling.cu_seqlens[d]);
    const auto end = static_cast<std::size_t>(filling.cu_seqlens[d + 1]);
    EXPECT_LT(begin, end);
    EXPECT_EQ((end - begin) % static_cast<std::size_t>(options_.document_multiple), 0U);
    const std::int64_t first = filling.tokens[begin], document = document_of(first);
    std::int64_t tokens = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (filling.tokens[i] == kPadToken) {
        EXPECT_EQ(filling.targets[i], kNoTarget);
        EXPECT_LT(end - i, static_cast<std::size_t>(options_.document_multiple));
        continue;
      }
      const std::int64_t token = filling.tokens[i];
      EXPECT_EQ(token, first + tokens++);
      EXPECT_EQ(document_of(token), document);
      const bool predicted = token + 1 < end_ && document_of(token + 1) == document;
      EXPECT_EQ(filling.targets[i], predicted ? token + 1 : kNoTarget);
      seen_.insert(token);
    }
    const auto d_at = static_cast<std::size_t>(document);
    const std::int64_t whole = std::min(source_.document_offsets()[d_at + 1], end_) -
                               std::max<std::int64_t>(source_.document_offsets()[d_at], 1);
    if (whole <= kLength) {
      EXPECT_EQ(tokens, whole) << "a document that fits is cut";
    }
    if (!options_.split_long) {
      EXPECT_LE(whole, kLength);
    }
    return tokens;
  }

  void check_tail(const Filling& filling) const {
    for (std::size_t i = static_cast<std::size_t>(filling.cu_seqlens.back());
         i < filling.tokens.size(); ++i) {
      EXPECT_EQ(filling.tokens[i], kPadToken);
      EXPECT_EQ(filling.targets[i], kNoTarget);
    }
    EXPECT_NO_THROW(require_document_starts(filling.cu_seqlens, 2 * kLength));
  }

  const CountingSource& source_;
  SequenceOptions options_;
  std::int64_t end_;
  Loader loader_;
  std::set<std::int64_t> seen_;
  std::int64_t most_pairs_ = 0;
};

TEST(sequences, every_token_is_served_whole_documents_at_a_time) {
  const std::uint64_t seed = ctest::seed();
  for (std::uint64_t round = 0; round < 20; ++round) {
    const CountingSource source = hard_documents(seed + round, 60);
    for (const SequenceOptions& options : all_options()) {
      SCOPED_TRACE(::testing::Message()
                   << "seed " << seed + round << ", " << name(options.packing) << ", split "
                   << options.split_long << ", window " << options.window << ", multiple "
                   << options.document_multiple << ", at most " << options.max_documents);
      PackedPass(source, options, seed).check();
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(sequences, a_small_case_by_hand) {
  const CountingSource source({0, 3, 9, 16, 20, 33});  // 3, 6, 7, 4 and 13 tokens
  Loader loader(source, {0, 33},
                {.sequences = {.seq_length = 10, .packing = Packing::best_fit},
                 .micro_batch_size = 2,
                 .global_batch_size = 2,
                 .shuffle = false});
  // 10 | 7 and 3 | 6 and 4 | 3, the rest of the last: only the last sequence has empty positions.
  EXPECT_EQ(loader.samples(), 4);
  EXPECT_EQ(loader.packing().split_documents, 1);
  EXPECT_DOUBLE_EQ(loader.packing().efficiency(), 33.0 / 40);
  EXPECT_EQ(text(loader.packing()),
            "best_fit, 82.50 % of positions hold a token; 1 of 5 documents split");
  const Filling first(loader, 0, 20, 4);
  EXPECT_EQ(first.cu_seqlens, (std::vector<std::int32_t>{0, 10, 13, 20, 20}));
  EXPECT_EQ(first.tokens[0], 20);
  EXPECT_EQ(first.targets[9], 30);  // one token beyond the cut
  EXPECT_EQ(first.tokens[10], 0);
  EXPECT_EQ(first.tokens[13], 9);
  loader.advance();
  const Filling second(loader, 0, 20, 4);
  EXPECT_EQ(second.cu_seqlens, (std::vector<std::int32_t>{0, 6, 10, 13, 13}));
  EXPECT_EQ(second.filled.tokens, 13);
  EXPECT_EQ(second.targets[12], kNoTarget);
  EXPECT_EQ(second.tokens[13], kPadToken);
}

TEST(sequences, long_documents_are_dropped_and_counted) {
  const CountingSource source({0, 3, 16, 27, 30});
  const Sequences sequences(source, {0, 30},
                            {.seq_length = 10, .packing = Packing::first_fit, .split_long = false});
  EXPECT_EQ(sequences.count(), 1);
  EXPECT_EQ(sequences.summary().dropped_documents, 2);
  EXPECT_EQ(sequences.summary().dropped_tokens, 24);
  expect_parts(text(sequences.summary()), {"24 tokens dropped in 2 of 4 documents above"});
  expect_parts(usage_error([&] {
                 Sequences(source, {3, 27},
                           {.seq_length = 10, .packing = Packing::best_fit, .split_long = false});
               }),
               {"counting", "none of its 2 documents", "train.seq_length = 10"});
}

/// Says that it does not know where documents end.
class Unmarked final : public TokenSource {
 public:
  std::int64_t tokens() const override { return 100; }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }
  void read(std::int64_t, std::span<std::int32_t>) const override {}
  bool knows_documents() const override { return false; }
  std::string description() const override { return "unmarked"; }
  std::vector<std::string> files() const override { return {}; }

 private:
  std::vector<std::int64_t> offsets_ = {0, 100};
};

TEST(sequences, whole_documents_need_known_ends) {
  const Unmarked source;
  EXPECT_NO_THROW(Sequences(source, {0, 100}, {.seq_length = 10}));
  expect_parts(usage_error([&] {
                 Sequences(source, {0, 100}, {.seq_length = 10, .packing = Packing::best_fit});
               }),
               {"unmarked", "data.document_token", "data.packing"});
}

TEST(sequences, documents_that_a_cut_splits_are_counted) {
  const CountingSource source({0, 10, 15, 42, 48, 57});
  const Sequences sequences(source, {0, 57}, {.seq_length = 10});
  // 15 to 42, and the last, of which 7 tokens are dropped.
  EXPECT_EQ(sequences.summary().split_documents, 2);
  EXPECT_EQ(sequences.summary().dropped_tokens, 7);
  EXPECT_EQ(sequences.summary().documents, 5);
}

TEST(sequences, counts_of_a_cut_stream_are_those_of_its_pieces) {
  const std::uint64_t seed = ctest::seed();
  for (std::uint64_t round = 0; round < 50; ++round) {
    const CountingSource source = hard_documents(seed + round, 40);
    const TokenRange range{static_cast<std::int64_t>(round % 7),
                           source.tokens() - static_cast<std::int64_t>(round % 5)};
    const bool keep_rest = round % 2 == 0;
    const Sequences sequences(source, range, {.seq_length = kLength, .keep_rest = keep_rest});
    std::vector<Piece> room;
    std::int64_t most = 0, most_pairs = 0, tokens = 0;
    std::set<std::int64_t> split;
    for (std::int64_t sequence = 0; sequence < sequences.count(); ++sequence) {
      const auto pieces = sequences.pieces(sequence, room);
      most = std::max(most, std::ssize(pieces));
      most_pairs = std::max(most_pairs, pairs(sequences, pieces));
      for (const Piece& piece : pieces) tokens += piece.tokens;
      if (pieces.back().continues)
        split.insert(*std::ranges::upper_bound(source.document_offsets(), pieces.back().begin));
    }
    EXPECT_EQ(sequences.summary().tokens, tokens) << "seed " << seed + round;
    EXPECT_EQ(tokens + sequences.summary().dropped_tokens, range.size()) << "seed " << seed + round;
    EXPECT_EQ(tokens == range.size(), keep_rest || range.size() % kLength == 0);
    EXPECT_EQ(sequences.max_pieces(), most) << "seed " << seed + round;
    EXPECT_EQ(sequences.max_pairs(), most_pairs) << "seed " << seed + round;
    EXPECT_EQ(sequences.summary().split_documents, std::ssize(split)) << "seed " << seed + round;
  }
}

TEST(sequences, the_rest_of_a_cut_stream_may_be_a_sequence) {
  const CountingSource source({0, 10, 15, 23});
  const Sequences none(source, {0, 23},
                       {.seq_length = 10, .packing = Packing::none, .keep_rest = true});
  std::vector<Piece> room;
  EXPECT_EQ(none.count(), 3);
  EXPECT_EQ(none.pieces(2, room).front().tokens, 3);
  EXPECT_FALSE(none.pieces(2, room).front().continues);
  EXPECT_EQ(none.summary().positions, 30);
  const Sequences small(source, {15, 23},
                        {.seq_length = 10, .packing = Packing::none, .keep_rest = true});
  EXPECT_EQ(small.count(), 1);
  EXPECT_EQ(small.max_pairs(), 8 * 9 / 2);
}

TEST(sequences, a_long_stream_is_cut_without_looking_at_every_sequence) {
  const std::int64_t tokens = std::int64_t{1} << 50;  // of which a loop would take days
  const CountingSource source({0, 3, tokens - 1, tokens});
  const Sequences sequences(source, {0, tokens}, {.seq_length = 8});
  EXPECT_EQ(sequences.count(), tokens / 8);
  EXPECT_EQ(sequences.max_pieces(), 2);
  EXPECT_EQ(sequences.max_pairs(), 8 * 9 / 2);
  EXPECT_EQ(sequences.summary().split_documents, 1);
}

}  // namespace
}  // namespace stowage::inputs
