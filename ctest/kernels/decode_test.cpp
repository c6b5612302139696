// One more token of each sequence, again and again, against operators that take whole documents.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "ctest/kernels/operator_arrays.hpp"
#include "ctest/kernels/packed.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/decode/attention_step.hpp"
#include "kernels/decode/conv1d_step.hpp"
#include "kernels/decode/gated_delta_step.hpp"
#include "kernels/decode/likeliest_token.hpp"
#include "kernels/decode/ssd_step.hpp"

namespace stowage::kernels::test {
namespace {

constexpr std::int64_t kSequences = 3, kTokens = 21;  // of each

Packed documents() { return Packed(std::vector<std::int64_t>(kSequences, kTokens), 0); }

/// Of rows of whole documents those of one token of each.
Values rows_at(const Values& all, std::int64_t t) {
  const std::int64_t width = std::ssize(all) / (kSequences * kTokens);
  Values some;
  for (std::int64_t b = 0; b < kSequences; ++b) {
    const auto row = all.begin() + (b * kTokens + t) * width;
    some.insert(some.end(), row, row + width);
  }
  return some;
}

/// Runs a step token by token, twice: the second time states hold what the first one left.
/// @return (B, T) rows of results. @param set_inputs of token t  @param result of the last run
template <Operator Op>
Values take_tokens(const Op& op, const Arrays<Op>& o,
                   const std::function<void(std::int64_t t)>& set_inputs, const Array& result) {
  Values all;
  for (int pass = 0; pass < 2; ++pass) {
    all.assign(at(kTokens) * result.size(), 0);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      set_inputs(t);
      set(o.positions, Values(kSequences, static_cast<double>(t)));
      Array(result).poison();
      run(op, o);
      const Values rows = result.values();
      const auto width = rows.size() / kSequences;
      for (std::size_t b = 0; b < kSequences; ++b)
        std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(b * width), width,
                    all.begin() + static_cast<std::ptrdiff_t>((b * at(kTokens) + at(t)) * width));
    }
  }
  return all;
}

TEST(conv1d_step, tokens_one_by_one_are_a_document) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const std::int64_t width : {2, 3, 4})
      for (const bool biased : {true, false}) {
        const Packed packed = documents();
        const Conv1dForward whole{.tokens = packed.tokens,
                                  .channels = 5,
                                  .width = width,
                                  .storage = storage,
                                  .biased = biased};
        const auto w = make_arrays(whole, random);
        set(w.seq_idx, {packed.document.begin(), packed.document.end()});
        run(whole, w);
        const Conv1dStep step{.sequences = kSequences,
                              .channels = 5,
                              .width = width,
                              .storage = storage,
                              .biased = biased};
        auto o = make_arrays(step, random);
        o.w = w.w, o.b = w.b;
        const Values x = values(w.x);
        const Values y = take_tokens(
            step, o, [&](auto t) { set(o.x, rows_at(x, t)); }, o.y);
        EXPECT_LE(relative_error(y, w.y.values()), tolerance(storage, 4)) << width << " taps";
      }
}

TEST(ssd_step, tokens_one_by_one_are_a_document) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const std::int64_t groups : {1, 2}) {
      const SsdShape shape{.heads = 4,
                           .head_dim = 5,
                           .groups = groups,
                           .state = 6,
                           .chunk = 8,
                           .dt_min = 0.01,
                           .dt_max = 1.5};
      const Packed packed = documents();
      const SsdForward whole{.shape = shape, .tokens = packed.tokens, .storage = storage};
      auto w = make_arrays(whole, random);
      set(w.inputs.a_log, random.uniform(shape.heads, -3, 1));
      set(w.inputs.seq_idx, {packed.document.begin(), packed.document.end()});
      run(whole, w);
      const SsdStep step{.shape = shape, .sequences = kSequences, .storage = storage};
      auto o = make_arrays(step, random);
      o.a_log = w.inputs.a_log, o.d = w.inputs.d, o.dt_bias = w.inputs.dt_bias;
      const Values xbc = values(w.inputs.xbc), dt = values(w.inputs.dt);
      const Values y = take_tokens(
          step, o, [&](auto t) { set(o.xbc, rows_at(xbc, t)), set(o.dt, rows_at(dt, t)); }, o.y);
      EXPECT_LE(relative_error(y, w.y.values()), tolerance(storage, 6 * kTokens)) << groups;
    }
}

TEST(gated_delta_step, tokens_one_by_one_are_a_document) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const bool channel_decay : {false, true}) {
      const GatedDeltaShape shape{.key_heads = 2,
                                  .value_heads = 4,
                                  .key_dim = 6,
                                  .value_dim = 5,
                                  .channel_decay = channel_decay};
      const Packed packed = documents();
      const GatedDeltaForward whole{.shape = shape, .tokens = packed.tokens, .storage = storage};
      auto w = make_arrays(whole, random);
      set(w.inputs.a_log, random.uniform(shape.value_heads, -3, 1));
      set(w.inputs.seq_idx, {packed.document.begin(), packed.document.end()});
      run(whole, w);
      const GatedDeltaStep step{.shape = shape, .sequences = kSequences, .storage = storage};
      auto o = make_arrays(step, random);
      o.a_log = w.inputs.a_log, o.dt_bias = w.inputs.dt_bias;
      const Values qkv = values(w.inputs.qkv), ba = values(w.inputs.ba);
      const Values a = channel_decay ? w.inputs.a.values() : Values();
      const Values y = take_tokens(
          step, o,
          [&](auto t) {
            set(o.qkv, rows_at(qkv, t)), set(o.ba, rows_at(ba, t));
            if (channel_decay) set(o.a, rows_at(a, t));
          },
          o.y);
      EXPECT_EQ(y, w.y.values());
    }
}

AttentionStep attention(std::int64_t heads, std::int64_t kv_heads, std::int64_t window,
                        Dtype storage) {
  return {.shape =
              {.heads = heads, .kv_heads = kv_heads, .head_dim = 6, .window = window, .scale = 0.7},
          .sequences = kSequences,
          .storage = storage};
}

/// Heads of rows (n, (H + 2 K) P).
HeadsOf<Array> heads_of(const AttentionStep& step, const Array& qkv, std::int64_t first) {
  return heads_in_columns(qkv, first * step.shape.head_dim, step.shape.width(),
                          step.shape.head_dim);
}

TEST(attention_step, tokens_one_by_one_are_a_document) {
  Random random;
  const Packed packed = documents();
  for (const Dtype storage : kFloatingTypes)
    for (const std::int64_t kv_heads : {1, 2, 4}) {
      const AttentionStep step = attention(4, kv_heads, kTokens, storage);
      const Values qkv = rounded(random.normal(packed.tokens * step.shape.width()), storage);
      const AttentionForward whole{
          .shape = {.heads = 4, .kv_heads = kv_heads, .head_dim = 6, .scale = step.shape.scale},
          .tokens = packed.tokens,
          .queries = packed.tokens,
          .documents = kSequences,
          .storage = storage};
      const Array rows(storage, {packed.tokens, step.shape.width()}, qkv);
      const Array out(storage, {packed.tokens, 4 * 6});
      const Array lse(execution::accumulation(storage), {4, packed.tokens});
      const Array starts = packed.cu_seqlens(), index = packed.seq_idx();
      const Array room = workspace(whole.workspace_bytes());
      const auto view = [](const HeadsOf<Array>& heads) {
        return HeadsOf<View>{heads.whole.view(), heads.first, heads.strides};
      };
      on_queue([&](Queue& queue) {
        whole.run(queue, {.q = view(heads_of(step, rows, 0)),
                          .k = view(heads_of(step, rows, 4)),
                          .v = view(heads_of(step, rows, 4 + kv_heads)),
                          .cu_seqlens = starts,
                          .seq_idx = index,
                          .o = view(heads_in_columns(out, 0, 4 * 6, 6)),
                          .lse = lse,
                          .workspace = room});
      });
      const auto o = make_arrays(step, random);
      const Values y = take_tokens(
          step, o, [&](auto t) { set(o.qkv, rows_at(qkv, t)); }, o.o);
      EXPECT_LE(relative_error(y, out.values()), tolerance(storage, 6 * kTokens))
          << kv_heads << " kv heads";
    }
}

// What lies behind a token's position is neither read nor written, so a longer window changes no
// bit.
TEST(attention_step, a_window_is_only_room) {
  Random random;
  const Values qkv = random.normal(kSequences * 8 * 6);
  Values result;
  for (const std::int64_t window : {9, 40}) {
    const AttentionStep step = attention(4, 2, window, Dtype::fp32);
    const auto o = make_arrays(step, random);
    Values keys(o.keys.size(), NAN), values = keys;
    const auto at_position = [&](std::int64_t b, std::int64_t head, std::int64_t t) {
      return at(((b * 2 + head) * window + t) * 6);
    };
    for (std::int64_t b = 0; b < kSequences; ++b)
      for (std::int64_t head = 0; head < 2; ++head)
        for (std::int64_t t = 0; t < 3 + b; ++t)
          for (std::size_t p = 0; p < 6; ++p) {
            keys[at_position(b, head, t) + p] = qkv[at(b + t) + p];
            values[at_position(b, head, t) + p] = qkv[at(2 * b + t + head) + p];
          }
    set(o.keys, keys), set(o.values, values);
    set(o.qkv, qkv);
    set(o.positions, {3, 4, 5});
    run(step, o);
    const Values written = o.keys.values();
    std::size_t present = 0;
    for (const double key : written) present += std::isfinite(key) ? 1 : 0;
    EXPECT_EQ(present, at(2 * 6 * (4 + 5 + 6)));
    if (result.empty()) result = o.o.values();
    EXPECT_EQ(o.o.values(), result) << window;
  }
}

TEST(attention_step, sizes_that_cannot_be_are_named) {
  EXPECT_NE(attention(4, 3, 8, Dtype::fp32).fault(), "");
  EXPECT_NE(attention(4, 2, 0, Dtype::fp32).fault(), "");
  EXPECT_EQ(attention(4, 2, 8, Dtype::fp32).fault(), "");
  EXPECT_NE((Conv1dStep{.sequences = 1, .channels = 1, .width = 5, .storage = Dtype::fp32}.fault()),
            "");
}

TEST(decode, steps_cost_their_states_read_and_written) {
  const execution::Cost convolution = Conv1dStep{3, 8, 4, Dtype::bf16}.cost();
  EXPECT_EQ(convolution.flops, (2.0 * 4 + 5) * 24);
  EXPECT_EQ(convolution.bytes, 2 * 2 * (3 + 1) * 24 + 2 * 5 * 8);
  EXPECT_EQ((Conv1dStep{3, 8, 4, Dtype::bf16, false}.cost().bytes), convolution.bytes - 2 * 8);
  const SsdShape scan{.heads = 4, .head_dim = 5, .groups = 2, .state = 6};
  const execution::Cost ssd = SsdStep{scan, 3, Dtype::bf16}.cost();
  EXPECT_EQ(ssd.flops, 6.0 * 3 * 20 * 6);
  EXPECT_EQ(ssd.bytes, 2 * 4 * 3 * 20 * 6 + 2 * 3 * (20 + 2 * 2 * 6 + 4 + 20));
  const GatedDeltaShape rule{2, 4, 8, 6};
  const execution::Cost delta = GatedDeltaStep{rule, 3, Dtype::bf16}.cost();
  EXPECT_EQ(delta.flops, 7.0 * 3 * 24 * 8);
  EXPECT_EQ(delta.bytes, 2 * 4 * 3 * 24 * 8 + 2 * 3 * (56 + 4 + 4 + 24));
}

TEST(likeliest_token, is_the_first_of_the_largest_and_has_its_probability) {
  for (const Dtype storage : kFloatingTypes) {
    const LikeliestToken op{.rows = 4, .vocabulary = 3, .storage = storage};
    Random random;
    const auto o = make_arrays(op, random);
    const double infinity = std::numeric_limits<double>::infinity();
    set(o.logits, {1, 3, 2, 5, 5, 5, 0, 0, infinity, -infinity, 2, 1});
    run(op, o);
    const Values probabilities = o.log_probabilities.values();
    EXPECT_EQ(o.tokens.values()[0], 1);
    EXPECT_EQ(o.tokens.values()[1], 0) << "of equal ones the first";
    EXPECT_NEAR(probabilities[0], -std::log(1 + std::exp(-1) + std::exp(-2)), 1e-6);
    EXPECT_NEAR(probabilities[1], -std::log(3), 1e-6);
    EXPECT_TRUE(std::isnan(probabilities[2]) && std::isnan(probabilities[3]));
  }
}

}  // namespace
}  // namespace stowage::kernels::test
