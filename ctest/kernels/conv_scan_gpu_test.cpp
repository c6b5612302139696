// Convolution and scan as one operator on a GPU: against the host in fp64, on inputs as rounded,
// and against the two operators there.

#include <algorithm>
#include <cmath>

#include "ctest/kernels/conv_scan_problem.hpp"
#include "ctest/kernels/device_mirror.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels::test {
namespace {

using execution::Bf16;

std::vector<Array> outputs(const ConvScanProblem& p) {
  std::vector<Array> all;
  for (const ConvScanResult& r : kConvScanResults) all.push_back(p.*r.array);
  return all;
}

/// Whether the operators take their fused kernels for these operands.
template <class S>
bool is_fused(const ConvScanCase& c, const ConvScanProblem& p, DeviceMirror& at) {
  const auto of = [&](const auto& op, const auto& arrays) {
    using Op = std::decay_t<decltype(op)>;
    return op.template is_fused<S>(addresses<S>(op, views<Op>(op, arrays, at)));
  };
  const bool forward = of(c.op<ConvScanForward>(p.y.dtype()), p.forward(c));
  EXPECT_EQ(forward, of(c.op<ConvScanBackward>(p.y.dtype()), p.backward(c)));
  return forward;
}

template <bool kFused>
std::vector<Array> results(const ConvScanCase& c, const ConvScanProblem& p, bool served,
                           int replays) {
  return on_gpu(
      [&](Queue& q, DeviceMirror& at) {
        if constexpr (kFused) {
          const bool bf16 = p.y.dtype() == Dtype::bf16;
          EXPECT_EQ(served, bf16 ? is_fused<Bf16>(c, p, at) : is_fused<float>(c, p, at));
        }
        kFused ? enqueue_fused(q, c, p, at, false) : enqueue_separate(q, c, p, at, false);
      },
      outputs(p), replays);
}

/// `served` by the fused kernels: there the gradients are the separate operators', to the bit, as
/// the rows between are; y may differ where segments begin.
void compare(const ConvScanCase& c, Dtype storage, bool served, int replays = 3) {
  Random random;
  const ConvScanProblem p(c, storage, random);
  const ConvScanProblem expected = p.in_fp64(c);
  on_queue([&](Queue& q) {
    enqueue_fused(
        q, c, expected, [](const Array& a) { return a.view(); }, false);
  });
  const std::vector<Array> fused = results<true>(c, p, served, replays);
  const std::vector<Array> separate = results<false>(c, p, served, 0);
  const double sums =
      64 * execution::epsilon(Dtype::fp32) * std::sqrt(static_cast<double>(p.n * c.shape.state));
  for (std::size_t i = 0; i < fused.size(); ++i) {
    const ConvScanResult& r = kConvScanResults[i];
    const Values values = values_of(c, r, fused[i]), other = values_of(c, r, separate[i]);
    const double rounding = execution::epsilon(storage);
    EXPECT_LT(error_of(values, values_of(c, r, expected.*r.array)), r.roundings * rounding + sums)
        << r.name << " in " << execution::name(storage) << ", tokens " << p.n;
    if (served && i == 0)
      EXPECT_LT(error_of(values, other), rounding) << r.name << ", tokens " << p.n;
    else
      EXPECT_EQ(values, other) << r.name << ", tokens " << p.n;
  }
}

Packed documents() { return Packed({70, 1, 1, 62, 64, 33, 128, 5}, 21); }

/// Long enough for several segments: boundaries on their edges, near them, and none.
Packed long_documents() { return Packed({512, 511, 2, 1000, 27, 1500}, 19); }

// {H, P, G, N, Q}
TEST(conv_scan_gpu, fused_kernels) {
  STOWAGE_NEED_WGMMA();
  compare({{16, 64, 2, 128, 64}, documents()}, Dtype::bf16, true);
  compare({{12, 64, 2, 128, 64}, documents()}, Dtype::bf16, true);
  compare({{4, 128, 2, 64, 64}, documents()}, Dtype::bf16, true);
  compare({{2, 64, 2, 64, 64}, Packed({1})}, Dtype::bf16, true);
  compare({{16, 80, 2, 128, 64}, documents()}, Dtype::bf16, true);
}

TEST(conv_scan_gpu, segments) {
  STOWAGE_NEED_WGMMA();
  compare({{16, 64, 2, 128, 64}, long_documents()}, Dtype::bf16, true);
  compare({{8, 128, 2, 64, 64}, long_documents()}, Dtype::bf16, true);
  compare({{16, 64, 1, 128, 64}, Packed({3000})}, Dtype::bf16, true);
  compare({{16, 80, 2, 128, 64}, long_documents()}, Dtype::bf16, true);
  compare({{16, 80, 1, 128, 64}, Packed({3000})}, Dtype::bf16, true);
}

TEST(conv_scan_gpu, narrower_filters) {
  STOWAGE_NEED_WGMMA();
  for (const std::int64_t taps : {2, 3}) {
    compare({{16, 64, 2, 128, 64}, documents(), taps}, Dtype::bf16, true);
    compare({{8, 128, 2, 64, 64}, long_documents(), taps}, Dtype::bf16, true);
    compare({{16, 80, 2, 128, 64}, documents(), taps}, Dtype::bf16, true);
    compare({{4, 32, 2, 24, 64}, documents(), taps}, Dtype::bf16, false);
  }
}

TEST(conv_scan_gpu, two_segments) {
  STOWAGE_NEED_WGMMA();
  compare({{8, 64, 1, 128, 64}, Packed({1100})}, Dtype::bf16, true);
}

TEST(conv_scan_gpu, other_shapes_by_the_two_operators) {
  STOWAGE_NEED_GPU();
  compare({{8, 64, 2, 128, 64}, documents()}, Dtype::bf16, false);  // a block would need all of C
  compare({{8, 80, 2, 64, 64}, documents()}, Dtype::bf16, false);
  compare({{4, 32, 2, 24, 64}, documents()}, Dtype::bf16, false);
  compare({{4, 32, 2, 24, 64}, documents()}, Dtype::fp32, false);
}

TEST(conv_scan_gpu, same_bits_in_100_graph_replays) {
  STOWAGE_NEED_WGMMA();
  compare({{16, 64, 2, 128, 64}, long_documents()}, Dtype::bf16, true, 100);
}

}  // namespace
}  // namespace stowage::kernels::test
