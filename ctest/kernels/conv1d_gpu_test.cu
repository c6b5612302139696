// The CUDA convolution against fp64, and its bits against itself.

#include <cstring>

#include "ctest/kernels/gpu_support.cuh"
#include "ctest/support/seed.hpp"
#include "kernels/conv1d/conv1d_cuda.hpp"

namespace stowage::test {
namespace {

using kernels::Conv1dCudaBackward;
using kernels::Conv1dCudaForward;
using kernels::Conv1dCudaShape;
using Bf16 = __nv_bfloat16;

struct Sizes {
  int tokens, channels, documents;
  bool halo;
  int width = 4;
};

struct Reference {
  std::vector<double> y, dx, dhalo, dw, db;
};

Reference reference(const Sizes& s, const std::vector<Bf16>& x, const std::vector<Bf16>& halo,
                    const std::vector<Bf16>& dy, const std::vector<float>& w,
                    const std::vector<float>& b, const std::vector<int>& seq_idx) {
  const int n = s.tokens, channels = s.channels;
  Reference r;
  r.y.resize(std::size_t(n) * channels);
  r.dx.resize(r.y.size());
  r.dhalo.resize(std::size_t(3) * channels);
  r.dw.resize(std::size_t(s.width) * channels);
  r.db.resize(channels);
  for (int t = 0; t < n; ++t) {
    for (int c = 0; c < channels; ++c) {
      const auto taps = [&](int k) {  // the source row, or -4 if it is of no use
        const int row = t - s.width + 1 + k;
        if (row < 0) return s.halo && seq_idx[t] == seq_idx[0] ? row : -4;
        return seq_idx[row] == seq_idx[t] ? row : -4;
      };
      const auto value = [&](int row) {
        return to_double(row < 0 ? halo[(row + 3) * channels + c] : x[row * channels + c]);
      };
      double u = b[c];
      for (int k = 0; k < s.width; ++k)
        u += taps(k) == -4 ? 0 : w[c * s.width + k] * value(taps(k));
      const double sigmoid = 1 / (1 + std::exp(-u));
      r.y[t * channels + c] = u * sigmoid;
      const double g = to_double(dy[t * channels + c]) * sigmoid * (1 + u * (1 - sigmoid));
      r.db[c] += g;
      for (int k = 0; k < s.width; ++k) {
        const int row = taps(k);
        if (row == -4) continue;
        r.dw[c * s.width + k] += g * value(row);
        (row < 0 ? r.dhalo[(row + 3) * channels + c] : r.dx[row * channels + c]) +=
            g * w[c * s.width + k];
      }
    }
  }
  return r;
}

void compare(const Sizes& s) {
  std::mt19937_64 generator(ctest::seed());
  const std::size_t count = std::size_t(s.tokens) * s.channels;
  const auto x = random_bf16(count, generator), dy = random_bf16(count, generator);
  const auto halo = random_bf16(std::size_t(3) * s.channels, generator);
  const auto w = random_float(std::size_t(s.width) * s.channels, 0, 0.5F, generator);
  const auto b = random_float(s.channels, 0, 0.2F, generator);
  std::vector<int> seq_idx(s.tokens);
  std::bernoulli_distribution begins(static_cast<double>(s.documents) / s.tokens);
  for (int t = 1; t < s.tokens; ++t) seq_idx[t] = seq_idx[t - 1] + begins(generator);
  const Reference expected = reference(s, x, halo, dy, w, b, seq_idx);

  const Buffer<Bf16> dev_x(x), dev_dy(dy), dev_halo(halo), y(count), dx(count), dhalo(halo.size());
  const Buffer<float> dev_w(w), dev_b(b), dw(w.size()), db(b.size());
  const Buffer<int> dev_seq(seq_idx);
  Conv1dCudaShape shape;
  shape.tokens = s.tokens;
  shape.channels = s.channels;
  shape.width = s.width;
  shape.x_stride = shape.y_stride = shape.dx_stride = s.channels;
  Conv1dCudaForward forward;
  forward.x = dev_x.get();
  forward.w = dev_w.get();
  forward.b = dev_b.get();
  forward.seq_idx = dev_seq.get();
  forward.halo = s.halo ? dev_halo.get() : nullptr;
  forward.y = y.get();
  kernels::conv1d_cuda_forward(shape, forward, nullptr);
  const Buffer<std::byte> workspace(kernels::conv1d_cuda_backward_workspace_bytes(shape));
  Conv1dCudaBackward backward;
  backward.dy = dev_dy.get();
  backward.x = dev_x.get();
  backward.w = dev_w.get();
  backward.b = dev_b.get();
  backward.seq_idx = dev_seq.get();
  backward.halo = forward.halo;
  backward.dx = dx.get();
  backward.dhalo = s.halo ? dhalo.get() : nullptr;
  backward.dw = dw.get();
  backward.db = db.get();
  backward.workspace = workspace.get();
  kernels::conv1d_cuda_backward(shape, backward, nullptr);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  constexpr double kRounded = 0x1p-8;       // one rounding to bf16: at most 2^-9
  constexpr double kSummed = 64 * 0x1p-24;  // fp32 sums of products of fp32 factors
  const std::size_t width = s.channels, taps = static_cast<std::size_t>(s.width);
  EXPECT_LT(relative_error(y.host(), width, 0, expected.y, width), kRounded);
  EXPECT_LT(relative_error(dx.host(), width, 0, expected.dx, width), kRounded);
  EXPECT_LT(relative_error(dw.host(), taps, 0, expected.dw, taps), kSummed);
  EXPECT_LT(relative_error(db.host(), 1, 0, expected.db, 1), kSummed);
  if (s.halo) {
    EXPECT_LT(relative_error(dhalo.host(), width, 0, expected.dhalo, width), kRounded);
  }

  const auto first = dw.host();
  kernels::conv1d_cuda_backward(shape, backward, nullptr);
  EXPECT_EQ(std::memcmp(first.data(), dw.host().data(), first.size() * sizeof(float)), 0);
  backward.accumulate = true;
  kernels::conv1d_cuda_backward(shape, backward, nullptr);
  std::vector<double> doubled(expected.dw);
  for (double& value : doubled) value *= 2;
  EXPECT_LT(relative_error(dw.host(), taps, 0, doubled, taps), kSummed);
}

TEST(conv1d_gpu, one_token) {
  STOWAGE_NEED_GPU();
  compare({1, 8, 0, false});
}

TEST(conv1d_gpu, ragged_tokens_and_channels_with_halo) {
  STOWAGE_NEED_GPU();
  compare({67, 264, 0, true});
  compare({515, 136, 9, true});
}

TEST(conv1d_gpu, narrower_filters) {
  STOWAGE_NEED_GPU();
  for (const int width : {2, 3}) {
    compare({67, 264, 0, true, width});
    compare({515, 136, 9, true, width});
    compare({1000, 520, 300, false, width});
  }
}

TEST(conv1d_gpu, many_documents) {
  STOWAGE_NEED_GPU();
  compare({1000, 520, 300, false});
}

TEST(conv1d_gpu, every_token_a_document) {
  STOWAGE_NEED_GPU();
  compare({333, 128, 333, false});
}

}  // namespace
}  // namespace stowage::test
