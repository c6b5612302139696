// Causal depthwise convolution of width 4, bias and SiLU: y_t = silu(b + sum_k w_k x_{t-3+k}).
// Narrower ones have zeros for the taps that they lack.
//
// x, y: (n, C) bf16 with row strides; sums in fp32. A warp owns 64 tokens of 128 channels, a lane
// four neighbouring channels (8-byte accesses, few registers, so many warps), and slides over the
// tokens with the last three rows in registers; sixteen rows are loaded ahead of those computed.
// Where a document begins the three rows are zeroed, so packed documents cost one bit test a row.
// Cost: 4 bytes and about 14 flops a token and channel; 3 of 67 rows are read twice, from L2.
// Deterministic. Limits: memory, 92 % of the copy rate; next: not to exist, by fusion into the
// scan's loads.

#include <type_traits>

#include "kernels/conv1d/conv1d_device.cuh"

namespace stowage::kernels::conv1d {
namespace {

constexpr int kGroup = 16;  ///< rows in flight

template <bool kInner, bool kNarrow>
__device__ __forceinline__ void strip(const Conv1dCudaShape& shape, const Conv1dCudaForward& args,
                                      const Begins& begins, int first, int channel) {
  const Weights<kChannels> weights(args.w, args.b, channel, shape.bf16_parameters,
                                   missing_taps<kNarrow>(shape.width));
  const auto* halo = static_cast<const __nv_bfloat16*>(args.halo);
  const Rows<kPairs, kInner> x{
      static_cast<const __nv_bfloat16*>(args.x) + first * shape.x_stride + channel,
      shape.x_stride,
      halo == nullptr ? nullptr : halo + channel,
      shape.channels,
      first,
      static_cast<int>(shape.tokens)};
  auto* y = static_cast<__nv_bfloat16*>(args.y) + first * shape.y_stride + channel;
  // rare strips test every row and have no registers to load ahead
  constexpr int kRows = kInner ? kGroup : kGroup / 2;
  Packed<kPairs> next[kRows];
  if constexpr (kInner) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) next[i] = x.load(i);
  }
  Past past;
  const std::uint32_t early = begins.from(0);
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    unpack<kPairs>(past[i], x.load(i - 3));
    if (early >> i & 1U) clear(past, i);
  }
#pragma unroll 1
  for (int base = 0; base < kStrip; base += kRows) {
    Packed<kPairs> now[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) now[i] = kInner ? next[i] : x.load(base + i);
    if (kInner && base + kRows < kStrip) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) next[i] = x.load(base + kRows + i);
    }
    const std::uint32_t bits = begins.from(base + 3);
    const auto take = [&](auto plain) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (!decltype(plain)::value && (bits >> i & 1U)) clear(past, 3);
        Packed<kPairs> out = convolve(weights, past, now[i]);
        if (kInner || first + base + i < shape.tokens) {
          put(y + (base + i) * shape.y_stride, out);
        }
      }
    };
    if (kInner && bits << (32 - kRows) == 0) {
      take(std::true_type{});  // no branch a row: rows overlap
    } else {
      take(std::false_type{});
    }
  }
}

template <bool kNarrow>
__global__ void __launch_bounds__(kThreads, 2)
    forward(const Conv1dCudaShape shape, const Conv1dCudaForward args) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int first = (static_cast<int>(blockIdx.y) * kWarps + warp) * kStrip;
  if (first >= shape.tokens) return;
  const Begins begins(args.seq_idx, first, shape.tokens, args.halo != nullptr);
  const int channel = (static_cast<int>(blockIdx.x) * 32 + lane) * kChannels;
  if (channel >= shape.channels) return;
  if (first >= 3 && first + kStrip <= shape.tokens) {
    strip<true, kNarrow>(shape, args, begins, first, channel);
  } else {
    strip<false, kNarrow>(shape, args, begins, first, channel);
  }
}

}  // namespace

int launch_forward(const Conv1dCudaShape& shape, const Conv1dCudaForward& args,
                   cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((shape.channels + 32 * kChannels - 1) / (32 * kChannels)),
                  static_cast<unsigned>(token_blocks(shape)));
  const auto kernel = shape.width < kTaps ? forward<true> : forward<false>;
  kernel<<<grid, kThreads, 0, stream>>>(shape, args);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::conv1d
