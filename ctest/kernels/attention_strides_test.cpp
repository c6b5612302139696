#include "ctest/kernels/attention_strides.hpp"

#include <gtest/gtest.h>

#include "kernels/attention/attention_heads.hpp"

namespace stowage::kernels::test {
namespace {

void compare(const StridedResults& actual, const StridedResults& expected, double tolerance) {
  EXPECT_LT(relative_error(actual.o, expected.o), tolerance);
  EXPECT_LT(rms_difference(actual.lse, expected.lse), tolerance);
  EXPECT_LT(relative_error(actual.dq, expected.dq), tolerance);
  EXPECT_LT(relative_error(actual.dk, expected.dk), tolerance);
  EXPECT_LT(relative_error(actual.dv, expected.dv), tolerance);
}

// Only the order of sums may differ: blocks of queries begin elsewhere.
TEST(attention_strides, as_side_by_side) {
  Random random;
  for (const bool causal : {true, false})
    for (const StridedCase& c : strided_cases(16, causal)) {
      SCOPED_TRACE(c.name);
      const StridedInputs in(random, c, Dtype::fp64);
      StridedAttention<Array> strided(c, in, Dtype::fp64);
      on_queue([&](Queue& queue) { strided.run(queue); });
      compare(strided.results(), dense_results(c, in), 1e-13);
    }
}

TEST(attention_strides, refuses_what_does_not_fit) {
  Random random;
  const StridedCase good = strided_cases(16, true)[0];
  const auto refused = [&](auto&& change) {
    StridedCase bad = good;
    change(bad);
    const StridedInputs in(random, good, Dtype::fp64);
    StridedAttention<Array> strided(good, in, Dtype::fp64);
    strided.description() = bad;
    EXPECT_ANY_THROW(on_queue([&](Queue& queue) { strided.run(queue); }));
  };
  refused([](StridedCase& c) { c.v.first += 1; });          // beyond the tensor
  refused([](StridedCase& c) { c.k.strides.row += 1; });    // beyond it too
  refused([](StridedCase& c) { c.o.strides.head = 15; });   // heads of o overlap
  refused([](StridedCase& c) { c.o.strides.row = 8; });     // rows do
  refused([](StridedCase& c) { c.v.strides.head = -16; });  // backwards
  refused([](StridedCase& c) { c.shape.length = 100; });    // 331 tokens
  refused([](StridedCase& c) { c.shape.scale = 0; });
  refused([](StridedCase& c) { c.shape.heads = 0; });
}

TEST(attention_strides, disjoint_heads) {
  const HeadExtents e{2, 10, 3, 8};
  EXPECT_TRUE(heads_are_disjoint(e, {24, 8}));        // (B, T, H, P)
  EXPECT_TRUE(heads_are_disjoint(e, {8, 80, 240}));   // (B, H, T, P)
  EXPECT_TRUE(heads_are_disjoint(e, {48, 8, 24}));    // (T, B, H, P)
  EXPECT_TRUE(heads_are_disjoint(e, {24, 8, 1000}));  // padded
  EXPECT_FALSE(heads_are_disjoint(e, {24, 7}));       // heads overlap
  EXPECT_FALSE(heads_are_disjoint(e, {23, 8}));       // rows do
  EXPECT_FALSE(heads_are_disjoint(e, {24, 8, 239}));  // sequences do
  EXPECT_FALSE(heads_are_disjoint(e, {0, 8, 240}));   // all rows are one
  EXPECT_EQ(head_span(e, {24, 8}), 2 * 10 * 24);
  EXPECT_EQ(head_span(e, {24, 8, 300}), 300 + 9 * 24 + 2 * 8 + 8);
}

}  // namespace
}  // namespace stowage::kernels::test
