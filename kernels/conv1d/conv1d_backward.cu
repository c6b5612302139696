// Backward of the causal depthwise convolution with SiLU.
//
//   u_t = b + sum_k w_k x_{t-3+k},  g_t = dy_t silu'(u_t)                    (u is recomputed)
//   dx_t = sum_k w_k g_{t+3-k},     dw_k = sum_t g_t x_{t-3+k},     db = sum_t g_t
//
// within documents. A warp owns a range of tokens of 128 channels, a lane four neighbouring ones,
// and slides over the tokens: three past rows of x and three unfinished rows of dx stay in
// registers; dx_{t-3} leaves when g_t is known. Three rows beyond the range are computed again for
// dx alone. `age`, how many tokens of the document came before (at most 3), selects the taps,
// uniformly. There are as many ranges as fill the GPU once, at two blocks an SM, so that the start
// of a range (weights, three rows) is rare and all warps end together; the warps of a block have
// neighbouring channels. Rows are taken by threes, the period of the window, so that no register
// moves; six to nine are on their way to shared memory, as registers have no room for what hides
// the latency of DRAM. More of them cost time: blocks then read places further apart.
// dw, db: per lane over the range, then over ranges by a second kernel: one fixed order, no
// atomics. fp32 sums.
// Cost: 6 bytes and about 40 flops a token and channel.
// Limits: memory, 89 to 90 % of the copy rate: reading rows from 264 places at once costs 6 %, the
// arithmetic 3 %, the second kernel 3 %; next: fusion with the scan's backward.

#include "kernels/conv1d/conv1d_device.cuh"
#include "kernels/hopper/cp_async.cuh"
#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/hopper/warp.cuh"

namespace stowage::kernels::conv1d {
namespace {

constexpr int kGroup = 3;   ///< rows at once: the window's period, so that no register moves
constexpr int kStages = 3;  ///< of kGroup rows; two of them on their way
static_assert(kRangeStep % kGroup == 0 && 32 * kChannels == kWarpChannels);

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
    g[c] = dy[c] * silu_gradient(u);
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

/// Which rows of a range begin a document, kGroup rows at a time, in order; a warp asks together.
class BeginStream {
 public:
  __device__ __forceinline__ BeginStream(const Conv1dCudaShape& shape,
                                         const Conv1dCudaBackward& args, int first)
      : shape_(shape), args_(args), first_(first) {}

  /// Bit i: row `row` + i of the range begins one; 32 rows.
  __device__ __forceinline__ std::uint32_t at(int row) const {
    const int t = first_ + row + static_cast<int>(threadIdx.x % 32);
    bool begins = t == 0 && args_.halo == nullptr;
    if (args_.seq_idx != nullptr && t > 0 && t < shape_.tokens) {
      begins = args_.seq_idx[t] != args_.seq_idx[t - 1];
    }
    return __ballot_sync(0xFFFFFFFFU, begins);
  }
  /// The same for kGroup rows, the next after the last.
  __device__ __forceinline__ std::uint32_t next(int row) {
    if (word_ == 1) word_ = (at(row) & (kEnd - 1)) | kEnd;
    const std::uint32_t bits = word_;
    word_ >>= kGroup;
    return bits;
  }

 private:
  static constexpr std::uint32_t kEnd = 1U << (31 / kGroup * kGroup);

  const Conv1dCudaShape& shape_;
  const Conv1dCudaBackward& args_;
  int first_;
  std::uint32_t word_ = 1;  ///< the bits to come, and a one behind them
};

/// kGroup rows of both inputs in shared memory; a lane writes and reads its own elements only.
struct Stage {
  Packed<kPairs> x[kGroup][32], dy[kGroup][32];
};

/// One lane's range of rows: where they lie, and its window. Rows are counted from the range's
/// first. Where all rows of a group are there, no row is tested alone.
struct Range {
  const Conv1dCudaShape& shape;
  const Conv1dCudaBackward& args;
  int channel;
  const __nv_bfloat16* x;
  const __nv_bfloat16* dy;
  __nv_bfloat16* dx;
  int left;     ///< rows to the end of the matrix
  bool begins;  ///< the range is the first
  Weights<kChannels> weights;
  Window window;

  __device__ __forceinline__ Range(const Conv1dCudaShape& sizes, const Conv1dCudaBackward& operands,
                                   int first, int from_channel, int missing)
      : shape(sizes),
        args(operands),
        channel(from_channel),
        x(at(args.x, first, shape.x_stride, channel)),
        dy(at(args.dy, first, shape.y_stride, channel)),
        dx(const_cast<__nv_bfloat16*>(at(args.dx, first, shape.dx_stride, channel))),
        left(static_cast<int>(shape.tokens) - first),
        begins(first == 0),
        weights(args.w, args.b, channel, shape.bf16_parameters, missing) {}

  __device__ static __forceinline__ const __nv_bfloat16* at(const void* base, int row,
                                                            std::int64_t stride, int channel) {
    return static_cast<const __nv_bfloat16*>(base) + row * stride + channel;
  }
  __device__ static __forceinline__ Packed<kPairs> value(const __nv_bfloat16* from) {
    return *reinterpret_cast<const Packed<kPairs>*>(from);
  }

  /// The three rows before the range.
  __device__ __forceinline__ void enter(std::uint32_t bits) {
    window.age = 0;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      Packed<kPairs> row{};
      if (!begins) row = value(x + (i - 3) * shape.x_stride);
      if (begins && args.halo != nullptr) row = value(at(args.halo, i, shape.channels, channel));
      unpack<kPairs>(window.past[i], row);
      clear(window.pending[i]);
      window.age = (bits >> i & 1U) || i == 0 ? 0 : window.age + 1;
      if ((bits >> i & 1U) == 0) continue;
#pragma unroll
      for (int k = 0; k < i; ++k) clear(window.past[k]);
    }
  }

  /// Starts to load kGroup rows from `row` on, unless the range ends before.
  __device__ __forceinline__ void load(Stage& to, int row, int rows, int lane) const {
    if (row <= rows) {
      const __nv_bfloat16* from_x = x + row * shape.x_stride;
      const __nv_bfloat16* from_dy = dy + row * shape.y_stride;
      if (row + kGroup <= left) {
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          async_copy_8(&to.x[i][lane], from_x + i * shape.x_stride);
          async_copy_8(&to.dy[i][lane], from_dy + i * shape.y_stride);
        }
      } else {
#pragma unroll 1
        for (int i = 0; i < kGroup; ++i) {
          const bool there = row + i < left;
          async_copy_8(&to.x[i][lane], there ? from_x + i * shape.x_stride : x, there);
          async_copy_8(&to.dy[i][lane], there ? from_dy + i * shape.y_stride : dy, there);
        }
      }
    }
    async_copy_commit();
  }

  /// Rows row .. row + kGroup - 1; they finish the rows three before.
  template <bool kPlain, bool kSum>
  __device__ __forceinline__ void take(int row, std::uint32_t bits, const Stage& from, int lane,
                                       Row (&sums)[kSums]) {
    __nv_bfloat16* to = dx + (row - kGroup) * shape.dx_stride;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      Row xr, dyr, done;
      unpack<kPairs>(xr, from.x[i][lane]);
      unpack<kPairs>(dyr, from.dy[i][lane]);
      advance<kPlain, kSum>(window, weights, (bits >> i & 1U) != 0, xr, dyr, sums, done);
      if (kPlain || (row > 0 && row - kGroup + i < left))
        put(to + i * shape.dx_stride, pack<kPairs>(done));
    }
  }

  __device__ __forceinline__ void run(BeginStream& stream, Stage* stages, int rows, int lane,
                                      Row (&sums)[kSums]) {
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) load(stages[i], i * kGroup, rows, lane);
    enter(stream.at(-3));
    int base = 0, stage = 0, next = kStages - 1;
#pragma unroll 1
    for (; base < rows && base < left; base += kGroup) {
      load(stages[next], base + (kStages - 1) * kGroup, rows, lane);
      async_copy_wait<kStages - 1>();
      const std::uint32_t bits = stream.next(base);
      const std::uint32_t group = bits & ((1U << kGroup) - 1);
      const bool inside = base > 0 && base + kGroup <= left;
      if (inside && window.age == 3 && group == 0) {
        take<true, true>(base, group, stages[stage], lane, sums);
      } else {
        take<false, true>(base, group, stages[stage], lane, sums);
      }
      stage = stage == kStages - 1 ? 0 : stage + 1;
      next = next == kStages - 1 ? 0 : next + 1;
    }
    async_copy_wait<0>();
    take<false, false>(base, stream.next(base), stages[stage], lane, sums);
  }
};

template <bool kNarrow>
__global__ void __launch_bounds__(kThreads, 2)
    backward(const Conv1dCudaShape shape, const Conv1dCudaBackward args, int rows) {
  griddepcontrol_launch_dependents();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int column = static_cast<int>(blockIdx.x) * block_warps(shape) + uniform_warp_index();
  if (column >= channel_warps(shape.channels)) return;
  const int first = static_cast<int>(blockIdx.y) * rows;
  // lanes beyond the last channel do the last ones again
  const int channel = min((column * 32 + lane) * kChannels, shape.channels - kChannels);
  extern __shared__ __align__(16) std::byte shared[];
  auto* stages = reinterpret_cast<Stage*>(shared) + uniform_warp_index() * kStages;
  BeginStream stream(shape, args, first);
  Row sums[kSums];
#pragma unroll
  for (Row& row : sums) clear(row);
  Range(shape, args, first, channel, missing_taps<kNarrow>(shape.width))
      .run(stream, stages, rows, lane, sums);
  auto* partial = static_cast<float*>(args.workspace) +
                  static_cast<std::int64_t>(blockIdx.y) * kSums * shape.channels + channel;
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    *reinterpret_cast<float4*>(partial + k * shape.channels) =
        make_float4(sums[k][0], sums[k][1], sums[k][2], sums[k][3]);
  }
}

/// The share of these tokens in the gradient of the three before them; a thread a channel.
template <bool kNarrow>
__global__ void __launch_bounds__(kThreads)
    halo_gradient(const Conv1dCudaShape shape, const Conv1dCudaBackward args) {
  const int c = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (c >= shape.channels) return;
  const Weights<1> weights(args.w, args.b, c, shape.bf16_parameters,
                           missing_taps<kNarrow>(shape.width));
  const auto* x = static_cast<const __nv_bfloat16*>(args.x) + c;
  const auto* halo = static_cast<const __nv_bfloat16*>(args.halo) + c;
  const auto* dy = static_cast<const __nv_bfloat16*>(args.dy) + c;
  float sums[3] = {0, 0, 0};
#pragma unroll
  for (int t = 0; t < 3; ++t) {
    if (t >= shape.tokens) break;
    if (t > 0 && args.seq_idx != nullptr && args.seq_idx[t] != args.seq_idx[t - 1]) break;
    float u = weights.b[0];
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      const int row = t - 3 + k;
      const auto value = row < 0 ? halo[(row + 3) * shape.channels] : x[row * shape.x_stride];
      u += weights.w[k][0] * __bfloat162float(value);
    }
    const float g = __bfloat162float(dy[t * shape.y_stride]) * silu_gradient(u);
#pragma unroll
    for (int k = 0; k < 3 - t; ++k) sums[t + k] += weights.w[k][0] * g;
  }
  auto* dhalo = static_cast<__nv_bfloat16*>(args.dhalo) + c;
#pragma unroll
  for (int i = 0; i < 3; ++i) dhalo[i * shape.channels] = __float2bfloat16(sums[i]);
}

/// Adds the ranges' partial sums: eight slices of them, then the slices, in order. Those of taps
/// that a narrower convolution lacks are left out.
template <bool kNarrow>
__global__ void __launch_bounds__(kThreads)
    finish(const Conv1dCudaShape shape, const Conv1dCudaBackward args, int count) {
  __shared__ float slices[kWarps][32];
  griddepcontrol_wait();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int c = static_cast<int>(blockIdx.x) * 32 + lane;
  const int k = static_cast<int>(blockIdx.y);
  float sum = 0;
  if (c < shape.channels) {
    const auto* partial = static_cast<const float*>(args.workspace) + k * shape.channels + c;
#pragma unroll 8
    for (int i = warp; i < count; i += kWarps) {
      sum += partial[static_cast<std::int64_t>(i) * kSums * shape.channels];
    }
  }
  slices[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || c >= shape.channels) return;
  sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += slices[w][lane];
  const int missing = missing_taps<kNarrow>(shape.width);
  if (kNarrow && k < missing) return;
  if (k == kTaps && args.db == nullptr) return;
  float* to = k < kTaps ? args.dw + static_cast<std::int64_t>(c) * (kTaps - missing) + k - missing
                        : args.db + c;
  *to = args.accumulate ? *to + sum : sum;
}

}  // namespace

int launch_backward(const Conv1dCudaShape& shape, const Conv1dCudaBackward& args,
                    cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(channel_blocks(shape)),
                  static_cast<unsigned>(ranges(shape)));
  const auto warps = static_cast<unsigned>(block_warps(shape));
  const std::size_t bytes = warps * kStages * sizeof(Stage);
  const auto kernel = shape.width < kTaps ? backward<true> : backward<false>;
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (status != cudaSuccess) return status;
  kernel<<<grid, 32 * warps, bytes, stream>>>(shape, args, range_rows(shape));
  if (args.halo != nullptr && args.dhalo != nullptr) {
    const auto channels = static_cast<unsigned>(shape.channels);
    const auto of_halo = shape.width < kTaps ? halo_gradient<true> : halo_gradient<false>;
    of_halo<<<(channels + kThreads - 1) / kThreads, kThreads, 0, stream>>>(shape, args);
  }
  return launch_finish(shape, args, ranges(shape), stream);
}

int launch_finish(const Conv1dCudaShape& shape, const Conv1dCudaBackward& args, std::int64_t count,
                  cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((shape.channels + 31) / 32), kSums);
  const auto kernel = shape.width < kTaps ? finish<true> : finish<false>;
  return launch_dependent(kernel, grid, kThreads, 0, stream, shape, args, static_cast<int>(count));
}

}  // namespace stowage::kernels::conv1d
