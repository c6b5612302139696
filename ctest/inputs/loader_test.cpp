#include "inputs/data/loader.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "ctest/inputs/loader_support.hpp"
#include "ctest/support/seed.hpp"

namespace stowage::inputs {
namespace {

using testing::CountingSource;
using testing::expect_parts;
using testing::Filling;
using testing::random_documents;
using testing::usage_error;

const LoaderOptions kBase{
    .sequences = {.seq_length = 10}, .micro_batch_size = 2, .global_batch_size = 4};

TEST(loader, samples_targets_and_lengths) {
  const CountingSource source({0, 4, 13, 20, 45});
  LoaderOptions options = kBase;
  options.shuffle = false;
  Loader loader(source, {0, 45}, options);
  EXPECT_EQ(loader.samples(), 4);
  EXPECT_EQ(loader.microbatches(), 2);
  EXPECT_EQ(loader.max_documents(), 4);
  const Filling first(loader, 0, 20, 6);
  for (std::int32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(first.tokens[i], i);
    const bool last_of_document = i == 3 || i == 12 || i == 19;
    EXPECT_EQ(first.targets[i], last_of_document ? kNoTarget : i + 1);
  }
  // Documents 0-4, 4-10 (cut), 10-13, 13-20; then padding with the last value.
  EXPECT_EQ(first.cu_seqlens, (std::vector<std::int32_t>{0, 4, 10, 13, 20, 20, 20}));
  EXPECT_EQ(first.filled.documents, 4);
  EXPECT_EQ(first.filled.targets, 17);
  const Filling second(loader, 1, 20, 2);
  EXPECT_EQ(second.cu_seqlens, (std::vector<std::int32_t>{0, 10, 20}));
  EXPECT_EQ(second.targets[9], 30);
  EXPECT_EQ(second.targets[19], 40);  // one token beyond the sample
  EXPECT_EQ(loader.global_targets(), 37);
  EXPECT_EQ(loader.global_documents(), 4);
}

TEST(loader, steps_without_a_target_are_passed_over) {
  std::vector<std::int64_t> ones(41);  // documents of one token: nothing follows in them
  std::iota(ones.begin(), ones.end(), 0);
  LoaderOptions options = kBase;
  options.shuffle = false;
  const CountingSource none(ones);
  Loader untargeted(none, {0, 40}, options);
  EXPECT_EQ(untargeted.global_targets(), 0);
  EXPECT_NE(usage_error([&] { (void)untargeted.pass_untargeted(3); }).find("4 batches of 4"),
            std::string::npos);
  ones.push_back(90);
  const CountingSource late(ones);
  Loader loader(late, {0, 90}, options);
  EXPECT_EQ(loader.pass_untargeted(loader.steps_per_pass()), 1);
  EXPECT_EQ(loader.position().sample, 4);
  EXPECT_EQ(loader.global_targets(), 40);
  EXPECT_EQ(loader.pass_untargeted(0), 0);
}

TEST(loader, the_last_token_of_the_range_has_no_target) {
  const CountingSource source({0, 100});
  LoaderOptions options = kBase;
  options.shuffle = false;
  options.sequences.packing = Packing::none;
  const Loader loader(source, {20, 60}, options);
  const Filling first(loader, 0, 20, 2), second(loader, 1, 20, 2);
  EXPECT_EQ(first.tokens.front(), 20);
  EXPECT_EQ(first.targets.back(), 40);
  EXPECT_EQ(second.tokens.back(), 59);
  EXPECT_EQ(second.targets.back(), kNoTarget);
  EXPECT_EQ(second.filled.targets, 19);
  EXPECT_EQ(loader.global_targets(), 39);
}

TEST(loader, packing_none_ignores_boundaries) {
  const CountingSource source({0, 4, 13, 20, 45});
  LoaderOptions options = kBase;
  options.shuffle = false;
  options.sequences.packing = Packing::none;
  const Loader loader(source, {0, 45}, options);
  const Filling first(loader, 0, 20, 3);
  EXPECT_EQ(first.targets[3], 4);
  EXPECT_EQ(first.cu_seqlens, (std::vector<std::int32_t>{0, 10, 20, 20}));
  EXPECT_EQ(first.filled.targets, 20);
  EXPECT_EQ(loader.max_documents(), 2);
}

TEST(loader, too_small_a_capacity_writes_nothing) {
  const CountingSource source({0, 4, 13, 20, 45});
  LoaderOptions options = kBase;
  options.shuffle = false;
  const Loader loader(source, {0, 45}, options);
  const Filling filling(loader, 0, 20, 3);
  EXPECT_EQ(filling.filled.documents, 4);
  for (const auto* buffer : {&filling.tokens, &filling.targets, &filling.cu_seqlens}) {
    EXPECT_TRUE(std::ranges::all_of(*buffer, [](std::int32_t x) { return x == -9; }));
  }
  EXPECT_EQ(Filling(loader, 0, 20, 4).cu_seqlens.back(), 20);  // exactly enough
}

/// All sequences of some steps, in global order, as any number of ranks serves them.
std::vector<std::vector<std::int32_t>> serve(const TokenSource& source, LoaderOptions options,
                                             int steps) {
  std::vector<Loader> loaders;
  for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
    loaders.emplace_back(source, TokenRange{0, source.tokens()}, options);
  }
  std::vector<std::vector<std::int32_t>> all;
  for (int step = 0; step < steps; ++step) {
    std::int64_t targets = 0;
    for (Loader& loader : loaders) {
      for (std::int64_t m = 0; m < loader.microbatches(); ++m) {
        const std::int64_t n = options.sequences.seq_length * options.micro_batch_size;
        const Filling filling(loader, m, n, loader.global_documents());
        targets += filling.filled.targets;
        EXPECT_EQ(filling.filled.targets, n - std::ranges::count(filling.targets, kNoTarget));
        for (auto t = filling.tokens.begin(); t != filling.tokens.end();
             t += options.sequences.seq_length) {
          all.emplace_back(t, t + options.sequences.seq_length);
        }
      }
    }
    for (Loader& loader : loaders) {
      EXPECT_EQ(loader.global_targets(), targets);
      loader.advance();
    }
  }
  return all;
}

TEST(loader, order_is_the_same_for_any_number_of_ranks) {
  const std::uint64_t seed = ctest::seed();
  const CountingSource source = random_documents(seed, 1003, true);
  LoaderOptions options{.sequences = {.seq_length = 10},
                        .micro_batch_size = 1,
                        .global_batch_size = 24,
                        .seed = seed};
  for (const Packing packing :
       {Packing::documents, Packing::first_fit, Packing::best_fit, Packing::none}) {
    options.sequences.packing = packing;
    for (const std::int64_t micro : {1, 2}) {
      options.micro_batch_size = micro;
      options.ranks = 1;
      const auto one = serve(source, options, 20);
      for (const std::int64_t ranks : {2, 3, 4, 6}) {
        options.ranks = ranks;
        EXPECT_EQ(serve(source, options, 20), one)
            << name(packing) << ", " << ranks << " ranks of " << micro << ", seed " << seed;
      }
    }
  }
}

TEST(loader, microbatches_of_any_size_hold_the_same_stream) {
  const std::uint64_t seed = ctest::seed();
  const CountingSource source = random_documents(seed, 1003, true);
  LoaderOptions options{.sequences = {.seq_length = 10},
                        .micro_batch_size = 1,
                        .global_batch_size = 24,
                        .seed = seed};
  const auto one = serve(source, options, 20);
  options.micro_batch_size = 3;
  options.ranks = 4;
  EXPECT_EQ(serve(source, options, 20), one) << "seed " << seed;
}

TEST(loader, continues_at_every_position_of_a_pass) {
  const std::uint64_t seed = ctest::seed();
  const CountingSource source = random_documents(seed, 310);
  for (const Packing packing :
       {Packing::documents, Packing::first_fit, Packing::best_fit, Packing::none}) {
    const LoaderOptions options{.sequences = {.seq_length = 10, .packing = packing, .window = 6},
                                .micro_batch_size = 2,
                                .global_batch_size = 4,
                                .seed = seed};
    Loader loader(source, {0, 310}, options);
    // Steps straddle the end of a pass, so two passes start at different offsets.
    for (std::int64_t step = 0; step < 2 * loader.samples() / 4 + 2; ++step, loader.advance()) {
      Loader resumed(source, {0, 310}, options);
      resumed.seek(loader.position());
      for (std::int64_t m = 0; m < 2; ++m) {
        const Filling kept(loader, m, 20, 20), found(resumed, m, 20, 20);
        EXPECT_EQ(kept.tokens, found.tokens)
            << name(packing) << " step " << step << " seed " << seed;
        EXPECT_EQ(kept.targets, found.targets) << name(packing) << " step " << step;
        EXPECT_EQ(kept.cu_seqlens, found.cu_seqlens) << name(packing) << " step " << step;
      }
      resumed.advance();
      Loader next = loader;
      next.advance();
      EXPECT_EQ(resumed.position(), next.position());
    }
  }
}

TEST(loader, every_pass_serves_every_sample_once_in_another_order) {
  const std::uint64_t seed = ctest::seed();
  const CountingSource source = random_documents(seed, 1003);  // 100 samples, steps of 12
  const LoaderOptions options{.sequences = {.seq_length = 10},
                              .micro_batch_size = 1,
                              .global_batch_size = 12,
                              .seed = seed};
  const auto all = serve(source, options, 25);  // three passes: steps straddle their ends
  ASSERT_EQ(all.size(), 300U);
  std::map<std::int32_t, int> starts;
  for (const auto& sequence : all) ++starts[sequence.front()];
  EXPECT_EQ(starts.size(), 100U);
  for (const auto& [start, times] : starts) EXPECT_EQ(times, 3) << start << " seed " << seed;
  EXPECT_FALSE(std::equal(all.begin(), all.begin() + 100, all.begin() + 100)) << "seed " << seed;
}

TEST(loader, continues_at_a_stored_position) {
  const std::uint64_t seed = ctest::seed();
  const CountingSource source = random_documents(seed, 997);
  const LoaderOptions options{
      .sequences = {.seq_length = 10}, .micro_batch_size = 2, .global_batch_size = 8, .seed = seed};
  Loader loader(source, {0, 997}, options);
  for (int step = 0; step < 30; ++step) loader.advance();
  const LoaderPosition position = loader.position();
  EXPECT_EQ(position.epoch, 240 / 99);
  EXPECT_EQ(position.sample, 240 % 99);
  EXPECT_EQ(position.seed, seed);
  LoaderOptions other = options;
  other.seed = seed + 1;
  Loader resumed(source, {0, 997}, other);
  resumed.seek(position);
  for (int step = 0; step < 20; ++step) {
    for (std::int64_t m = 0; m < 4; ++m) {
      EXPECT_EQ(Filling(loader, m, 20, 20).tokens, Filling(resumed, m, 20, 20).tokens);
    }
    loader.advance();
    resumed.advance();
  }
  EXPECT_EQ(loader.position(), resumed.position());
}

/// How often an evaluation serves each token, on all ranks, and as what it is counted.
class Evaluated {
 public:
  Evaluated(const CountingSource& source, LoaderOptions options)
      : served_(static_cast<std::size_t>(source.tokens())) {
    options.once = true;
    for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
      Loader loader(source, {0, source.tokens()}, options);
      const LoaderPosition begin = loader.position();
      for (std::int64_t step = 0; step < loader.steps_per_pass(); ++step, loader.advance()) {
        add(loader, options.sequences.seq_length * options.micro_batch_size);
        if (options.rank > 0) continue;
        tokens += loader.global_tokens();
        targets += loader.global_targets();
      }
      EXPECT_EQ(loader.position(), (LoaderPosition{begin.seed, 1, 0}));
    }
  }

  std::int64_t tokens = 0, targets = 0;                // as the loader predicts them
  std::int64_t filled_tokens = 0, filled_targets = 0;  // as it fills them
  const std::vector<int>& served() const { return served_; }

 private:
  void add(const Loader& loader, std::int64_t n) {
    for (std::int64_t m = 0; m < loader.microbatches(); ++m) {
      const Filling filling(loader, m, n, loader.max_documents());
      EXPECT_NO_THROW(require_document_starts(filling.cu_seqlens, n));
      filled_tokens += filling.filled.tokens;
      filled_targets += filling.filled.targets;
      for (std::size_t i = 0; i < filling.targets.size(); ++i) {
        if (filling.targets[i] == kNoTarget) continue;
        EXPECT_EQ(filling.targets[i], filling.tokens[i] + 1);
        ++served_[static_cast<std::size_t>(filling.targets[i])];
      }
    }
  }

  std::vector<int> served_;  // of each token, how often it was a target
};

// Whatever the batch, the last one included that the data do not fill.
TEST(loader, an_evaluation_serves_every_token_once) {
  const std::uint64_t seed = ctest::seed();
  for (const bool masked : {false, true}) {
    const CountingSource source = random_documents(seed, 313, masked);
    const auto offsets = source.document_offsets();
    for (const Packing packing :
         {Packing::documents, Packing::first_fit, Packing::best_fit, Packing::none}) {
      std::vector<int> right(313);
      std::vector<std::uint8_t> mask(313);
      source.read_mask(0, mask);
      for (std::size_t i = 0; i < right.size(); ++i) right[i] = mask[i];
      right[0] = 0;
      if (packing != Packing::none)
        for (const std::int64_t offset : offsets.first(offsets.size() - 1)) right[offset] = 0;
      const std::int64_t count = std::accumulate(right.begin(), right.end(), std::int64_t{0});
      for (const std::int64_t batch : {2, 4, 12, 32, 64, 128})
        for (const std::int64_t ranks : {1, 2}) {
          SCOPED_TRACE(::testing::Message() << name(packing) << ", batch " << batch << " on "
                                            << ranks << ", masked " << masked << ", seed " << seed);
          const Evaluated found(source, {.sequences = {.seq_length = 10, .packing = packing},
                                         .micro_batch_size = batch / ranks % 2 == 0 ? 2 : 1,
                                         .global_batch_size = batch,
                                         .ranks = ranks,
                                         .shuffle = ranks == 2});
          EXPECT_EQ(found.served(), right);
          EXPECT_EQ(found.tokens, 313);
          EXPECT_EQ(found.filled_tokens, 313);
          EXPECT_EQ(found.targets, count);
          EXPECT_EQ(found.filled_targets, count);
        }
    }
  }
}

// Counted positions and lengths against a plain count over the stream, on random documents.
TEST(loader, agrees_with_a_plain_count) {
  const std::uint64_t seed = ctest::seed();
  const CountingSource source = random_documents(seed, 2000);
  const auto offsets = source.document_offsets();
  const LoaderOptions options{
      .sequences = {.seq_length = 50}, .micro_batch_size = 2, .global_batch_size = 2, .seed = seed};
  Loader loader(source, {0, 2000}, options);
  const auto document_of = [&](std::int64_t token) {
    return std::ranges::upper_bound(offsets, token) - offsets.begin();
  };
  for (int step = 0; step < 40; ++step, loader.advance()) {
    const Filling filling(loader, 0, 100, loader.max_documents());
    std::vector<std::int32_t> expected = {0};
    for (std::size_t i = 0; i < 100; ++i) {
      const std::int64_t token = filling.tokens[i];
      const bool joined = token + 1 < 2000 && document_of(token) == document_of(token + 1);
      EXPECT_EQ(filling.targets[i], joined ? token + 1 : kNoTarget) << "seed " << seed;
      if (!joined || i == 49 || i == 99) expected.push_back(static_cast<std::int32_t>(i + 1));
    }
    expected.resize(filling.cu_seqlens.size(), 100);
    EXPECT_EQ(filling.cu_seqlens, expected) << "seed " << seed;
  }
}

TEST(loader, errors) {
  const CountingSource source({0, 30});
  LoaderOptions options = kBase;
  options.ranks = 3;
  expect_parts(usage_error([&] {
                 Loader(source, {0, 30}, options);
               }),
               {"4 sequences", "3 ranks * 2 sequences"});
  expect_parts(usage_error([&] {
                 Loader(source, {5, 14}, kBase);
               }),
               {"counting", "9 tokens", "train.seq_length = 10"});
  Loader loader(source, {0, 30}, kBase);
  expect_parts(usage_error([&] { loader.seek({.seed = 0, .epoch = 0, .sample = 3}); }),
               {"sample 3", "3 samples"});
  EXPECT_NO_THROW(loader.seek({.seed = 0, .epoch = 5, .sample = 2}));
  expect_parts(usage_error([&] { loader.seek({.seed = 0, .epoch = INT64_MAX, .sample = 2}); }),
               {"epoch 9223372036854775807"});
}

TEST(loader, document_starts_that_kernels_cannot_use_are_refused) {
  const auto said = [](std::vector<std::int32_t> starts) -> std::string {
    try {
      require_document_starts(starts, 20);
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), execution::Exit::runtime);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(said({0, 4, 4, 20, 20}), "");
  expect_parts(said({1, 4, 20}), {"cu_seqlens[0] = 1"});
  expect_parts(said({0, 8, 7, 20}), {"cu_seqlens[2] = 7 after 8"});
  expect_parts(said({0, 8, 21}), {"cu_seqlens[2] = 21", "at most 20"});
  expect_parts(said({0, -1, 20}), {"cu_seqlens[1] = -1"});
}

}  // namespace
}  // namespace stowage::inputs
