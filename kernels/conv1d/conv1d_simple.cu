// The convolution for any number of channels and any stride, storage S in fp32 or bf16: formulas as
// in conv1d_forward.cu and conv1d_backward.cu, halos and documents too.
//
// A thread owns one channel of 64 tokens and slides over them, so a warp reads 32 neighbouring
// channels of a row. fp32 sums; dw and db by strip, then over strips in order. Deterministic.
// Cost: as the vector kernels, at about half their rate: one element a load.

#include <cuda_bf16.h>

#include "kernels/conv1d/conv1d_layout.hpp"

namespace stowage::kernels::conv1d {
namespace {

constexpr int kThreads = 128;

__device__ float to_float(float value) { return value; }
__device__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

/// One channel: its filter, whose first taps are zero if it has fewer than four (kNarrow), and its
/// column of a matrix around a strip.
template <class S, bool kNarrow>
struct Channel {
  float w[4], b;
  const S* x;
  const S* halo;
  std::int64_t x_stride, channels, tokens;
  const int* seq_idx;

  template <class Args>
  __device__ Channel(const Conv1dCudaShape& shape, const Args& args, int channel)
      : x(static_cast<const S*>(args.x) + channel),
        halo(args.halo == nullptr ? nullptr : static_cast<const S*>(args.halo) + channel),
        x_stride(shape.x_stride),
        channels(shape.channels),
        tokens(shape.tokens),
        seq_idx(args.seq_idx) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int width = kNarrow ? shape.width : 4, tap = k - (4 - width);
      w[k] = tap < 0 ? 0 : to_float(static_cast<const S*>(args.w)[width * channel + tap]);
    }
    b = args.b == nullptr ? 0 : to_float(static_cast<const S*>(args.b)[channel]);
  }
  __device__ float at(std::int64_t t) const {
    if (t >= 0) return t < tokens ? to_float(x[t * x_stride]) : 0;
    return halo == nullptr || t < -3 ? 0 : to_float(halo[(t + 3) * channels]);
  }
  /// Whether token t has no token before it in its document.
  __device__ bool begins(std::int64_t t) const {
    if (t >= tokens) return true;
    if (t <= 0) return halo == nullptr || t < -2;
    return seq_idx != nullptr && seq_idx[t] != seq_idx[t - 1];
  }
};

/// The rows t - 3, t - 2, t - 1 of x, and how many of them are of token t's document.
struct Window {
  float past[3] = {0, 0, 0};
  int age = 0;

  /// Goes on to token t.
  template <class C>
  __device__ void enter(const C& channel, std::int64_t t) {
    if (!channel.begins(t)) return;
    past[0] = past[1] = past[2] = 0;
    age = 0;
  }
  __device__ float filter(const float (&w)[4], float b, float x) const {
    return b + w[0] * past[0] + w[1] * past[1] + w[2] * past[2] + w[3] * x;
  }
  __device__ void leave(float x) {
    past[0] = past[1];
    past[1] = past[2];
    past[2] = x;
    age = min(age + 1, 3);
  }
};

template <class S, bool kNarrow>
__global__ void __launch_bounds__(kThreads)
    simple_forward(const Conv1dCudaShape shape, const Conv1dCudaForward args) {
  const int c = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (c >= shape.channels) return;
  const Channel<S, kNarrow> channel(shape, args, c);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * kStrip;
  const std::int64_t end = min(first + kStrip, shape.tokens);
  Window window;
#pragma unroll 4
  for (std::int64_t t = first - 3; t < end; ++t) {
    const float x = channel.at(t);
    window.enter(channel, t);
    if (t >= first) {
      const float u = window.filter(channel.w, channel.b, x);
      static_cast<S*>(args.y)[t * shape.y_stride + c] = static_cast<S>(u / (1 + expf(-u)));
    }
    window.leave(x);
  }
}

template <class S, bool kNarrow>
__global__ void __launch_bounds__(kThreads)
    simple_backward(const Conv1dCudaShape shape, const Conv1dCudaBackward args) {
  const int c = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (c >= shape.channels) return;
  const Channel<S, kNarrow> channel(shape, args, c);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * kStrip;
  const std::int64_t end = min(first + kStrip, shape.tokens);
  const auto* dy = static_cast<const S*>(args.dy) + c;
  auto* dx = static_cast<S*>(args.dx) + c;
  auto* dhalo = args.dhalo == nullptr ? nullptr : static_cast<S*>(args.dhalo) + c;
  Window window;
  float pending[3] = {0, 0, 0};  // dx of rows t - 3, t - 2, t - 1, unfinished
  float sums[kSums] = {};
#pragma unroll 4
  for (std::int64_t t = first - 3; t < end + 3; ++t) {
    const float x = channel.at(t);
    window.enter(channel, t);
    float g = 0;
    if (t >= first && t < shape.tokens) {
      const float u = window.filter(channel.w, channel.b, x);
      const float s = 1 / (1 + expf(-u));
      g = to_float(dy[t * shape.y_stride]) * s * (1 + u * (1 - s));
    }
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      if (window.age >= 3 - k) pending[k] += channel.w[k] * g;
      if (t < end) sums[k] += g * window.past[k];
    }
    if (t < end) {
      sums[3] += g * x;
      sums[4] += g;
    }
    const std::int64_t done = t - 3;
    if (done >= first) dx[done * shape.dx_stride] = static_cast<S>(pending[0]);
    if (first == 0 && t >= 0 && done < 0 && dhalo != nullptr) {
      dhalo[(done + 3) * shape.channels] = static_cast<S>(pending[0]);
    }
    pending[0] = pending[1];
    pending[1] = pending[2];
    pending[2] = channel.w[3] * g;
    window.leave(x);
  }
  auto* partial = static_cast<float*>(args.workspace) +
                  static_cast<std::int64_t>(blockIdx.y) * kSums * shape.channels + c;
#pragma unroll
  for (int k = 0; k < kSums; ++k) partial[k * shape.channels] = sums[k];
}

dim3 grid_of(const Conv1dCudaShape& shape) {
  return {static_cast<unsigned>((shape.channels + kThreads - 1) / kThreads),
          static_cast<unsigned>(strips(shape))};
}

}  // namespace

int launch_simple_forward(const Conv1dCudaShape& shape, const Conv1dCudaForward& args,
                          cudaStream_t stream) {
  if (shape.tokens == 0) return cudaSuccess;
  const bool narrow = shape.width < 4;
  const auto kernel =
      shape.bf16_parameters
          ? (narrow ? simple_forward<__nv_bfloat16, true> : simple_forward<__nv_bfloat16, false>)
          : (narrow ? simple_forward<float, true> : simple_forward<float, false>);
  kernel<<<grid_of(shape), kThreads, 0, stream>>>(shape, args);
  return cudaGetLastError();
}

int launch_simple_backward(const Conv1dCudaShape& shape, const Conv1dCudaBackward& args,
                           cudaStream_t stream) {
  if (shape.tokens > 0) {
    const bool narrow = shape.width < 4;
    const auto kernel =
        shape.bf16_parameters
            ? (narrow ? simple_backward<__nv_bfloat16, true>
                      : simple_backward<__nv_bfloat16, false>)
            : (narrow ? simple_backward<float, true> : simple_backward<float, false>);
    kernel<<<grid_of(shape), kThreads, 0, stream>>>(shape, args);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return launch_finish(shape, args, strips(shape), stream);
}

}  // namespace stowage::kernels::conv1d
