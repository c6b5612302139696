// Backward of the causal depthwise convolution with SiLU.
//
//   u_t = b + sum_k w_k x_{t-3+k},  g_t = dy_t silu'(u_t)                    (u is recomputed)
//   dx_t = sum_k w_k g_{t+3-k},     dw_k = sum_t g_t x_{t-3+k},     db = sum_t g_t
//
// within documents. A warp owns 64 tokens of 128 channels, a lane four neighbouring channels, and
// slides over the tokens: three past rows of x and three unfinished rows of dx stay in registers;
// dx_{t-3} leaves when g_t is known. Three rows beyond the strip are computed again for dx alone.
// `age`, how many tokens of the document came before (at most 3), selects the taps, uniformly.
// dw, db: per lane over the strip, over the block's warps through shared memory, over the blocks
// by a second kernel: one fixed order, no atomics. fp32 sums.
// Cost: 6 bytes and about 40 flops a token and channel; 9 of 134 rows are read twice, from L2.
// Limits: 128 registers a thread leave 16 warps an SM, which do not hide all latency behind some 30
// instructions an element: 79 % of the copy rate. Next: fusion with the scan's backward.

#include "kernels/conv1d/conv1d_device.cuh"

namespace stowage::kernels::conv1d {
namespace {

constexpr int kPairs = 2;
constexpr int kChannels = 2 * kPairs;
constexpr int kGroup = 4;  ///< rows in flight
constexpr int kBlockChannels = 32 * kChannels;

using Row = float[kChannels];

/// The sliding window of one lane.
struct Window {
  Row past[3];     ///< x of rows t - 3, t - 2, t - 1
  Row pending[3];  ///< dx of the same rows, unfinished
  int age;
};

__device__ __forceinline__ void clear(Row& row) {
#pragma unroll
  for (float& value : row) value = 0;
}

/// Takes row t: adds its terms to `sums`, finishes dx of row t - 3 in `done`. kPlain promises that
/// the document began before row t - 2: rows without branches overlap.
template <bool kPlain, bool kSum>
__device__ __forceinline__ void advance(Window& window, const Weights<kChannels>& weights,
                                        bool begins, const Row& x, const Row& dy,
                                        Row (&sums)[kSums], Row& done) {
  if constexpr (!kPlain) {
    window.age = begins ? 0 : min(window.age + 1, 3);
    if (begins) {
#pragma unroll
      for (Row& row : window.past) clear(row);
    }
  }
  Row g;
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    float u = weights.b[c] + weights.w[0][c] * window.past[0][c];
    u += weights.w[1][c] * window.past[1][c];
    u += weights.w[2][c] * window.past[2][c];
    u += weights.w[3][c] * x[c];
    const float s = sigmoid(u);
    g[c] = dy[c] * s * (1 + u * (1 - s));
  }
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    if (!kPlain && window.age < 3 - k) continue;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) window.pending[k][c] += weights.w[k][c] * g[c];
  }
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    if constexpr (kSum) {
#pragma unroll
      for (int k = 0; k < 3; ++k) sums[k][c] += g[c] * window.past[k][c];
      sums[3][c] += g[c] * x[c];
      sums[4][c] += g[c];
    }
    done[c] = window.pending[0][c];
    window.pending[0][c] = window.pending[1][c];
    window.pending[1][c] = window.pending[2][c];
    window.pending[2][c] = weights.w[3][c] * g[c];
    window.past[0][c] = window.past[1][c];
    window.past[1][c] = window.past[2][c];
    window.past[2][c] = x[c];
  }
}

/// One lane's strip: where its rows lie, and its window.
template <bool kInner>
struct Strip {
  Rows<kPairs, kInner> x, dy;
  __nv_bfloat16* dx;     ///< the strip's first row
  __nv_bfloat16* dhalo;  ///< row -3, or nullptr
  std::int64_t dx_stride;
  Weights<kChannels> weights;
  Window window;

  __device__ __forceinline__ Strip(const Conv1dCudaShape& shape, const Conv1dCudaBackward& args,
                                   int first, int channel)
      : x(rows(args.x, args.halo, shape, shape.x_stride, first, channel)),
        dy(rows(args.dy, nullptr, shape, shape.y_stride, first, channel)),
        dx(static_cast<__nv_bfloat16*>(args.dx) + first * shape.dx_stride + channel),
        dhalo(args.dhalo == nullptr ? nullptr : static_cast<__nv_bfloat16*>(args.dhalo) + channel),
        dx_stride(shape.dx_stride),
        weights(args.w, args.b, channel, shape.bf16_parameters) {}

  __device__ static __forceinline__ Rows<kPairs, kInner> rows(const void* base, const void* halo,
                                                              const Conv1dCudaShape& shape,
                                                              std::int64_t stride, int first,
                                                              int channel) {
    const auto* before = static_cast<const __nv_bfloat16*>(halo);
    return {static_cast<const __nv_bfloat16*>(base) + first * stride + channel,
            stride,
            before == nullptr ? nullptr : before + channel,
            shape.channels,
            first,
            static_cast<int>(shape.tokens)};
  }

  /// The three rows before the strip.
  __device__ __forceinline__ void begin(std::uint32_t begins) {
    window.age = 0;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      unpack<kPairs>(window.past[i], x.load(i - 3));
      clear(window.pending[i]);
      window.age = (begins >> i & 1U) || i == 0 ? 0 : window.age + 1;
      if ((begins >> i & 1U) == 0) continue;
#pragma unroll
      for (int k = 0; k < i; ++k) clear(window.past[k]);
    }
  }

  /// Rows base .. base + kCount - 1 of the strip.
  template <bool kPlain, bool kSum, int kCount>
  __device__ __forceinline__ void take(int base, std::uint32_t begins,
                                       const Packed<kPairs> (&x_rows)[kGroup],
                                       const Packed<kPairs> (&dy_rows)[kGroup],
                                       Row (&sums)[kSums]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      Row xr, dyr, done;
      unpack<kPairs>(xr, x_rows[i]);
      unpack<kPairs>(dyr, dy_rows[i]);
      advance<kPlain, kSum>(window, weights, (begins >> i & 1U) != 0, xr, dyr, sums, done);
      const int at = base + i - 3;  // the finished row
      if (at >= 0 && (kInner || x.start + at < x.tokens)) {
        *reinterpret_cast<Packed<kPairs>*>(dx + at * dx_stride) = pack<kPairs>(done);
      } else if (!kInner && at < 0 && x.start == 0 && dhalo != nullptr) {
        *reinterpret_cast<Packed<kPairs>*>(dhalo + (at + 3) * x.channels) = pack<kPairs>(done);
      }
    }
  }

  __device__ __forceinline__ void run(const Begins& begins, Row (&sums)[kSums]) {
    Packed<kPairs> next_x[kGroup], next_dy[kGroup];
    const auto load = [&](int base) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        next_x[i] = x.load(base + i);
        next_dy[i] = dy.load(base + i);
      }
    };
    load(0);
    begin(begins.from(0));
#pragma unroll 1
    for (int base = 0; base < kStrip; base += kGroup) {
      Packed<kPairs> now_x[kGroup], now_dy[kGroup];
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        now_x[i] = next_x[i];
        now_dy[i] = next_dy[i];
      }
      load(base + kGroup);
      const std::uint32_t bits = begins.from(base + 3);
      if (base > 0 && window.age == 3 && bits << (32 - kGroup) == 0) {
        take<true, true, kGroup>(base, bits, now_x, now_dy, sums);
      } else {
        take<false, true, kGroup>(base, bits, now_x, now_dy, sums);
      }
    }
    take<false, false, 3>(kStrip, begins.from(kStrip + 3), next_x, next_dy, sums);
  }
};

__global__ void __launch_bounds__(kThreads, 2)
    backward(const Conv1dCudaShape shape, const Conv1dCudaBackward args) {
  __shared__ float shared[kWarps][kSums][kBlockChannels];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int first = (static_cast<int>(blockIdx.y) * kWarps + warp) * kStrip;
  const int channel = static_cast<int>(blockIdx.x) * kBlockChannels + lane * kChannels;
  Row sums[kSums];
#pragma unroll
  for (Row& row : sums) clear(row);
  if (first < shape.tokens) {
    const Begins begins(args.seq_idx, first, shape.tokens, args.halo != nullptr);
    const bool inner = first >= 3 && first + kStrip + kGroup <= shape.tokens;
    if (channel < shape.channels && inner) {
      Strip<true>(shape, args, first, channel).run(begins, sums);
    } else if (channel < shape.channels) {
      Strip<false>(shape, args, first, channel).run(begins, sums);
    }
  }
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    *reinterpret_cast<float4*>(&shared[warp][k][lane * kChannels]) =
        make_float4(sums[k][0], sums[k][1], sums[k][2], sums[k][3]);
  }
  __syncthreads();
  auto* partial = static_cast<float*>(args.workspace) +
                  static_cast<std::int64_t>(blockIdx.y) * kSums * shape.channels;
  for (int i = static_cast<int>(threadIdx.x); i < kSums * kBlockChannels; i += kThreads) {
    const int k = i / kBlockChannels, c = i % kBlockChannels;
    const int column = static_cast<int>(blockIdx.x) * kBlockChannels + c;
    if (column >= shape.channels) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += shared[w][k][c];
    partial[k * shape.channels + column] = sum;
  }
}

/// Adds the blocks' partial sums in order.
__global__ void __launch_bounds__(kThreads)
    finish(const Conv1dCudaShape shape, const Conv1dCudaBackward args, int blocks) {
  const int c = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int k = static_cast<int>(blockIdx.y);
  if (c >= shape.channels) return;
  const auto* partial = static_cast<const float*>(args.workspace) + k * shape.channels + c;
  float sum = 0;
#pragma unroll 8
  for (int i = 0; i < blocks; ++i) {
    sum += partial[static_cast<std::int64_t>(i) * kSums * shape.channels];
  }
  float* to = k < kTaps ? args.dw + static_cast<std::int64_t>(c) * kTaps + k : args.db + c;
  *to = args.accumulate ? *to + sum : sum;
}

}  // namespace

cudaError_t launch_backward(const Conv1dCudaShape& shape, const Conv1dCudaBackward& args,
                            cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(token_blocks(shape));
  const auto channels = static_cast<unsigned>(shape.channels);
  backward<<<dim3((channels + kBlockChannels - 1) / kBlockChannels, blocks), kThreads, 0, stream>>>(
      shape, args);
  finish<<<dim3((channels + kThreads - 1) / kThreads, kSums), kThreads, 0, stream>>>(
      shape, args, static_cast<int>(blocks));
  return cudaGetLastError();
}

}  // namespace stowage::kernels::conv1d
