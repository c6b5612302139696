// One more token of each sequence on a GPU against the host reference in fp64, on inputs as rounded
// to storage. Of sequences one begins: its state is not read.

#include <cmath>

#include "ctest/kernels/operator_check.hpp"
#include "kernels/decode/attention_step.hpp"
#include "kernels/decode/conv1d_step.hpp"
#include "kernels/decode/gated_delta_step.hpp"
#include "kernels/decode/likeliest_token.hpp"
#include "kernels/decode/ssd_step.hpp"

namespace stowage::kernels::test {
namespace {

Values positions(std::int64_t sequences) {
  Values all;
  for (std::int64_t b = 0; b < sequences; ++b) all.push_back(static_cast<double>(b * 7 % 100));
  return all;
}

/// A rounding to storage, and sums of so many terms in fp32.
Tolerances bound(Dtype storage, std::int64_t terms) {
  return [=](std::string_view) { return tolerance(storage, static_cast<double>(terms), 16); };
}

TEST(decode_gpu, convolution_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kDeviceTypes)
    for (const std::int64_t width : {2, 3, 4})
      for (const std::int64_t channels : {1, 300, 1024}) {
        const Conv1dStep op{.sequences = 5,
                            .channels = channels,
                            .width = width,
                            .storage = storage,
                            .biased = width != 3};
        const auto o = make_arrays(op, random);
        set(o.positions, positions(op.sequences));
        check_on_gpu(op, o, bound(storage, width));
      }
}

TEST(decode_gpu, scan_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  const SsdShape shapes[] = {{.heads = 2, .head_dim = 3, .groups = 1, .state = 5},
                             {.heads = 8, .head_dim = 64, .groups = 2, .state = 128},
                             {.heads = 4, .head_dim = 80, .groups = 4, .state = 20}};
  for (const Dtype storage : kDeviceTypes)
    for (const SsdShape& shape : shapes) {
      const SsdStep op{.shape = shape, .sequences = 3, .storage = storage};
      const auto o = make_arrays(op, random);
      set(o.a_log, random.uniform(shape.heads, -3, 1));
      set(o.positions, positions(op.sequences));
      check_on_gpu(op, o, bound(storage, shape.state));
    }
}

TEST(decode_gpu, delta_rule_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  const GatedDeltaShape shapes[] = {
      {.key_heads = 1, .value_heads = 2, .key_dim = 5, .value_dim = 3},
      {.key_heads = 2, .value_heads = 4, .key_dim = 128, .value_dim = 128},
      {.key_heads = 3, .value_heads = 3, .key_dim = 40, .value_dim = 70},
      {.key_heads = 1, .value_heads = 2, .key_dim = 160, .value_dim = 9},
      {.key_heads = 1, .value_heads = 2, .key_dim = 5, .value_dim = 3, .channel_decay = true},
      {.key_heads = 4, .value_heads = 4, .key_dim = 128, .value_dim = 128, .channel_decay = true}};
  for (const Dtype storage : kDeviceTypes)
    for (const GatedDeltaShape& shape : shapes) {
      const GatedDeltaStep op{.shape = shape, .sequences = 3, .storage = storage};
      const auto o = make_arrays(op, random);
      set(o.a_log, random.uniform(shape.value_heads, -3, 1));
      set(o.positions, positions(op.sequences));
      check_on_gpu(op, o, bound(storage, shape.key_dim));
    }
}

AttentionStep attention(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                        std::int64_t window, Dtype storage) {
  return {.shape = {.heads = heads,
                    .kv_heads = kv_heads,
                    .head_dim = head_dim,
                    .window = window,
                    .scale = 1 / std::sqrt(static_cast<double>(head_dim))},
          .sequences = 6,
          .storage = storage};
}

// Positions at and around the ends of parts; heads that are whole packs, and not.
TEST(decode_gpu, attention_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kDeviceTypes)
    for (const std::int64_t head_dim : {1, 6, 64, 80, 128, 256})
      for (const auto& [heads, kv_heads] : {std::pair{2, 2}, {6, 2}, {9, 1}, {20, 1}}) {
        const AttentionStep op = attention(heads, kv_heads, head_dim, 700, storage);
        const auto o = make_arrays(op, random);
        set(o.positions, {0, 1, 255, 256, 511, 699});
        check_on_gpu(op, o, bound(storage, 700));
      }
}

// A longer window has more blocks, and other places for what they leave.
TEST(decode_gpu, a_longer_window_leaves_the_same_bits) {
  STOWAGE_NEED_GPU();
  Random random;
  constexpr std::int64_t kDim = 64, kWindow = 300;
  const AttentionStep op = attention(4, 2, kDim, kWindow, Dtype::bf16);
  const auto o = make_arrays(op, random);
  set(o.positions, {0, 1, 255, 256, 257, 299});
  const Values short_of = on_gpu(op, o, {o.o})[0].values();
  AttentionStep longer = op;
  longer.shape.window = 1000;
  const auto l = make_arrays(longer, random);
  set(l.qkv, o.qkv.values()), set(l.positions, o.positions.values());
  const auto widen = [&](const Array& from, const Array& to) {
    const Values all = from.values();
    Values wide = to.values();
    for (std::size_t row = 0; row < all.size() / (kWindow * kDim); ++row)
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(row * kWindow * kDim), kWindow * kDim,
                  wide.begin() + static_cast<std::ptrdiff_t>(row * 1000 * kDim));
    set(to, wide);
  };
  widen(o.keys, l.keys), widen(o.values, l.values);
  EXPECT_EQ(on_gpu(longer, l, {l.o})[0].values(), short_of);
}

TEST(decode_gpu, likeliest_token_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t vocabulary : {1, 31, 1000, 65536}) {
    const LikeliestToken op{.rows = 5, .vocabulary = vocabulary, .storage = Dtype::bf16};
    const auto o = make_arrays(op, random);
    Values logits = random.uniform(op.rows * vocabulary, -8, 8);
    const auto last_row = logits.end() - vocabulary;
    *last_row = logits.back() = 9;  // of equal ones the first
    set(o.logits, logits);
    check_on_gpu(op, o, bound(Dtype::fp32, vocabulary));
  }
  const LikeliestToken op{.rows = 2, .vocabulary = 100, .storage = Dtype::fp32};
  const auto o = make_arrays(op, random);
  Values logits(200, 1);
  logits[77] = std::nan("");
  set(o.logits, logits);
  const auto found = on_gpu(op, o, {o.log_probabilities});
  EXPECT_TRUE(std::isnan(found[0].values()[0]));
  EXPECT_NEAR(found[0].values()[1], -std::log(100), 1e-5);
}

}  // namespace
}  // namespace stowage::kernels::test
