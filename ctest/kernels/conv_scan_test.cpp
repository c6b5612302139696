// Convolution and scan as one operator give, on the host, the bits of the two; what those are worth
// is the business of their own tests.

#include "ctest/kernels/conv_scan_problem.hpp"
#include "execution/error.hpp"

namespace stowage::kernels::test {
namespace {

View here(const Array& array) { return array.view(); }

void expect_bits(const ConvScanCase& c, Dtype storage) {
  Random random;
  const ConvScanProblem one(c, storage, random);
  ConvScanProblem two = one;  // the arrays' bytes are shared, so outputs of its own
  for (const ConvScanResult& r : kConvScanResults) {
    const Array& like = one.*r.array;
    two.*r.array = Array(like.dtype(), like.view().info->buffers[0].shape);
  }
  for (const bool accumulate : {false, true}) {
    on_queue([&](Queue& q) {
      enqueue_fused(q, c, one, here, accumulate);
      enqueue_separate(q, c, two, here, accumulate);
    });
    for (const ConvScanResult& r : kConvScanResults)
      EXPECT_EQ(values_of(c, r, one.*r.array), values_of(c, r, two.*r.array))
          << r.name << " in " << execution::name(storage);
  }
}

// {H, P, G, N, Q}; the last has the gradient of the rows between in the place of the rows.
TEST(conv_scan, same_bits_as_the_two_operators) {
  const std::vector<ConvScanCase> cases = {{{1, 1, 1, 1, 4}, Packed({1})},
                                           {{4, 3, 2, 5, 4}, Packed({4, 1, 0, 6, 2}, 3)},
                                           {{3, 4, 3, 2, 8}, Packed({8, 8, 1, 7, 15})},
                                           {{4, 64, 2, 64, 16}, Packed({20, 1, 30}, 2)},
                                           {{4, 3, 2, 5, 4}, Packed({4, 1, 0, 6, 2}, 3), 2},
                                           {{4, 64, 2, 64, 16}, Packed({20, 1, 30}, 2), 3}};
  for (const ConvScanCase& c : cases)
    for (const Dtype storage : kFloatingTypes) expect_bits(c, storage);
}

TEST(conv_scan, leaves_the_rows_between) {
  const ConvScanCase c{{4, 3, 2, 5, 4}, Packed({4, 1, 0, 6, 2}, 3)};
  Random random;
  ConvScanProblem p(c, Dtype::bf16, random);
  p.convolved = Array(Dtype::bf16, {p.n, c.shape.channels()});
  on_queue([&](Queue& q) {
    enqueue_fused(q, c, p, here, false);
    enqueue_separate(q, c, p, here, false);
  });
  EXPECT_EQ(p.convolved.values(), p.xbc.values());
}

TEST(conv_scan, refuses_other_numbers_of_taps) {
  for (const std::int64_t width : {1, 2, 4, 5}) {
    const ConvScanForward op{
        .shape = {2, 3, 1, 4, 4}, .tokens = 7, .conv_width = width, .storage = Dtype::fp32};
    EXPECT_EQ(op.fault().find("conv_weight") == std::string::npos, width == 2 || width == 4);
  }
}

TEST(conv_scan, refuses_operands_of_other_shapes) {
  const ConvScanCase c{{2, 3, 1, 4, 4}, Packed({7})};
  Random random;
  const ConvScanProblem p(c, Dtype::fp32, random);
  const auto op = c.op<ConvScanForward>(Dtype::fp32);
  Arrays<ConvScanForward> narrow = p.forward(c), swapped = narrow, tight = narrow;
  --narrow.inputs.xbc.count;
  swapped.conv_bias = p.a_log;
  tight.workspace = workspace(16);
  for (const auto& wrong : {narrow, swapped, tight}) EXPECT_THROW(run(op, wrong), execution::Error);
}

}  // namespace
}  // namespace stowage::kernels::test
