#include "kernels/rope/rope.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/operator_arrays.hpp"
#include "ctest/kernels/packed.hpp"

namespace stowage::kernels::test {
namespace {

constexpr std::int64_t kHeads = 3, kKvHeads = 2, kHeadDim = 6;
constexpr std::int64_t kWidth = (kHeads + 2 * kKvHeads) * kHeadDim;
constexpr double kTheta = 100;

Packed documents() { return Packed({1, 40, 0, 5, 20}, 4); }

enum class Pass { forward, backward };

Rope rope_of(std::int64_t tokens, const Packed& packed, Dtype storage, Pass pass,
             const RopeFrequencies& frequencies = {kTheta}, std::int64_t rotary_dim = kHeadDim) {
  return {.tokens = tokens,
          .heads = kHeads,
          .kv_heads = kKvHeads,
          .head_dim = kHeadDim,
          .rotary_dim = rotary_dim,
          .starts = packed.cu_seqlens().view().extent(0),
          .storage = storage,
          .frequencies = frequencies,
          .backward = pass == Pass::backward};
}

Values rotate(Pass pass, Dtype storage, const Packed& packed, const Values& in,
              const RopeFrequencies& frequencies = {kTheta}, std::int64_t rotary_dim = kHeadDim) {
  const Array to(storage, {packed.tokens, kWidth});
  run(rope_of(packed.tokens, packed, storage, pass, frequencies, rotary_dim),
      {.in = {storage, {packed.tokens, kWidth}, in},
       .cu_seqlens = packed.cu_seqlens(),
       .seq_idx = packed.seq_idx(),
       .positions = {},
       .out = to});
  return to.values();
}

// By complex numbers: pair i is x_i + i x_{i + R/2}, times exp(i * angle).
Values plain_forward(const Packed& packed, const Values& in, std::int64_t rotary_dim = kHeadDim) {
  Values out = in;
  for (std::int64_t t = 0; t < packed.tokens; ++t)
    for (std::int64_t h = 0; h < kHeads + kKvHeads; ++h)
      for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
        const double angle =
            static_cast<double>(packed.position(t)) /
            std::pow(kTheta, 2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
        const std::size_t a = at(t * kWidth + h * kHeadDim + i), b = a + at(rotary_dim / 2);
        const double radius = std::hypot(in[a], in[b]), phase = std::atan2(in[b], in[a]) + angle;
        out[a] = radius * std::cos(phase);
        out[b] = radius * std::sin(phase);
      }
  return out;
}

TEST(rope, forward_is_the_formula) {
  Random random;
  const Packed packed = documents();
  for (const Dtype storage : kFloatingTypes) {
    const Values in = rounded(random.normal(packed.tokens * kWidth), storage);
    EXPECT_LT(relative_error(rotate(Pass::forward, storage, packed, in), plain_forward(packed, in)),
              tolerance(storage, 2));
  }
}

// The first columns of a head turn as a narrower head does; the others stay.
TEST(rope, a_part_of_each_head_turns) {
  Random random;
  const Packed packed = documents();
  for (const std::int64_t rotary_dim : {2, 4})
    for (const Dtype storage : kFloatingTypes) {
      const Values in = rounded(random.normal(packed.tokens * kWidth), storage);
      const Values out = rotate(Pass::forward, storage, packed, in, {kTheta}, rotary_dim);
      EXPECT_LT(relative_error(out, plain_forward(packed, in, rotary_dim)), tolerance(storage, 2));
      for (std::int64_t head = 0; head < packed.tokens * kWidth / kHeadDim; ++head)
        for (std::int64_t j = rotary_dim; j < kHeadDim; ++j)
          EXPECT_EQ(out[at(head * kHeadDim + j)], in[at(head * kHeadDim + j)]);
      EXPECT_LT(
          relative_error(rotate(Pass::backward, storage, packed, out, {kTheta}, rotary_dim), in),
          2 * tolerance(storage, 2));
    }
  EXPECT_NE(rope_of(1, packed, Dtype::fp64, Pass::forward, {kTheta}, 3).fault(), "");
  EXPECT_NE(rope_of(1, packed, Dtype::fp64, Pass::forward, {kTheta}, kHeadDim + 2).fault(), "");
}

// Of the pairs of a head of 128, some waves stay, some lie in between, some are slowed.
TEST(rope, long_waves_are_slowed) {
  const RopeFrequencies frequencies{500000, 8, 1, 4, 8192};
  EXPECT_TRUE(frequencies.scales());
  EXPECT_FALSE(RopeFrequencies{}.scales());
  int stayed = 0, between = 0, slowed = 0;
  double last = 2;
  for (int i = 0; i < 64; ++i) {
    const double plain = std::pow(500000.0, -2.0 * i / 128), wave = 2 * M_PI / plain;
    const double found = frequencies.scaled(plain);
    if (wave < 8192.0 / 4) {
      ++stayed;
      EXPECT_EQ(found, plain);
    } else if (wave > 8192.0 / 1) {
      ++slowed;
      EXPECT_EQ(found, plain / 8);
    } else {
      ++between;
      const double smooth = (8192 / wave - 1) / (4 - 1);
      EXPECT_NEAR(found, (1 - smooth) * plain / 8 + smooth * plain, 1e-15 * plain);
    }
    EXPECT_LT(found, last);
    last = found;
  }
  EXPECT_GT(stayed, 0);
  EXPECT_GT(between, 0);
  EXPECT_GT(slowed, 0);
}

TEST(rope, scaled_angles_are_those_of_slower_pairs) {
  Random random;
  const Packed packed = documents();
  const Values in = random.normal(packed.tokens * kWidth);
  // All waves are long ones: each position turns as one at half of it would.
  const RopeFrequencies half{kTheta, 2, 1e6, 4e6, 8192};
  const Values slow = rotate(Pass::forward, Dtype::fp64, packed, in, half);
  Values expected = in;
  for (std::int64_t t = 0; t < packed.tokens; ++t)
    for (std::int64_t h = 0; h < kHeads + kKvHeads; ++h)
      for (std::int64_t i = 0; i < kHeadDim / 2; ++i) {
        const double angle = static_cast<double>(packed.position(t)) / 2 /
                             std::pow(kTheta, 2.0 * static_cast<double>(i) / kHeadDim);
        const std::size_t a = at(t * kWidth + h * kHeadDim + i), b = a + kHeadDim / 2;
        expected[a] = in[a] * std::cos(angle) - in[b] * std::sin(angle);
        expected[b] = in[b] * std::cos(angle) + in[a] * std::sin(angle);
      }
  EXPECT_LT(relative_error(slow, expected), 1e-14);
  EXPECT_LT(relative_error(rotate(Pass::backward, Dtype::fp64, packed, slow, half), in), 1e-14);
}

// It is linear, so <dy, R x> = <R^T dy, x> is the whole of the gradient.
TEST(rope, backward_is_the_transpose) {
  Random random;
  const Packed packed = documents();
  const Values x = random.normal(packed.tokens * kWidth),
               dy = random.normal(packed.tokens * kWidth);
  const double expected = dot(dy, rotate(Pass::forward, Dtype::fp64, packed, x));
  const double actual = dot(rotate(Pass::backward, Dtype::fp64, packed, dy), x);
  EXPECT_NEAR(actual, expected, 1e-12 * std::sqrt(dot(x, x) * dot(dy, dy)));
  for (const Dtype storage : kFloatingTypes) {
    const Values in = rounded(random.normal(packed.tokens * kWidth), storage);
    const Values back =
        rotate(Pass::backward, storage, packed, rotate(Pass::forward, storage, packed, in));
    EXPECT_LT(relative_error(back, in), 2 * tolerance(storage, 2));
  }
}

TEST(rope, gradient_by_finite_differences) {
  Random random;
  const Packed packed({3, 2});
  const Values x = random.normal(packed.tokens * kWidth),
               dy = random.normal(packed.tokens * kWidth);
  const Values expected =
      numeric_gradient(x, [&](const Values& v) { return dot(plain_forward(packed, v), dy); });
  EXPECT_LT(relative_error(rotate(Pass::backward, Dtype::fp64, packed, dy), expected), 1e-8);
}

// A part of the tokens turns as it does among all of them, whatever document it begins in.
TEST(rope, part_of_the_tokens) {
  Random random;
  const Packed packed = documents();
  const Values in = random.normal(packed.tokens * kWidth);
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const Values whole = rotate(pass, Dtype::fp64, packed, in);
    const Array cu_seqlens = packed.cu_seqlens();
    const std::int64_t cuts[] = {0, 1, 23, 46, 63, packed.tokens};
    for (std::size_t part = 0; part + 1 < std::size(cuts); ++part) {
      const std::int64_t first = cuts[part], rows = cuts[part + 1] - first;
      const auto cut = [&](const Values& all) {
        return Values(all.begin() + first * kWidth, all.begin() + (first + rows) * kWidth);
      };
      const Array to(Dtype::fp64, {rows, kWidth});
      Rope op = rope_of(rows, packed, Dtype::fp64, pass);
      op.first_token = first;
      run(op, {.in = {Dtype::fp64, {rows, kWidth}, cut(in)},
               .cu_seqlens = cu_seqlens,
               .seq_idx = int32_array(
                   {packed.document.begin() + first, packed.document.begin() + first + rows}),
               .positions = {},
               .out = to});
      EXPECT_EQ(to.values(), cut(whole)) << "from " << first;
    }
  }
}

// Rows of any positions turn as tokens at these positions of a document do.
TEST(rope, positions_may_be_given) {
  Random random;
  const Packed packed = documents();
  for (const Dtype storage : kFloatingTypes) {
    const Values in = rounded(random.normal(packed.tokens * kWidth), storage);
    std::vector<std::int32_t> positions;
    for (std::int64_t t = 0; t < packed.tokens; ++t)
      positions.push_back(static_cast<std::int32_t>(packed.position(t)));
    Rope op = rope_of(packed.tokens, packed, storage, Pass::forward);
    op.positions = true;
    const Array to(storage, {packed.tokens, kWidth});
    run(op, {.in = {storage, {packed.tokens, kWidth}, in},
             .cu_seqlens = {},
             .seq_idx = {},
             .positions = int32_array(positions),
             .out = to});
    EXPECT_EQ(to.values(), rotate(Pass::forward, storage, packed, in));
  }
}

TEST(rope, works_in_place) {
  Random random;
  const Packed packed = documents();
  const Values in = random.normal(packed.tokens * kWidth);
  const Array x(Dtype::fp32, {packed.tokens, kWidth}, in);
  run(rope_of(packed.tokens, packed, Dtype::fp32, Pass::forward),
      {.in = x,
       .cu_seqlens = packed.cu_seqlens(),
       .seq_idx = packed.seq_idx(),
       .positions = {},
       .out = x});
  EXPECT_EQ(x.values(), rotate(Pass::forward, Dtype::fp32, packed, in));
}

}  // namespace
}  // namespace stowage::kernels::test
