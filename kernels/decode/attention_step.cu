// One query a sequence over its cache of keys and values, formula in attention_step.hpp. Bound by
// memory: a cache is read once, up to the token's position.
//
//   append:  k and v of the token to their row of the caches
//   parts:   a block for kPart positions of a kv head and kHeads of the query heads that read it:
//            scores, weights, sums of values; a team of lanes has a key or value, 16 bytes a lane
//   combine: a block for kColumns columns of a query head, whose warps add every kWarps-th part
//
// attention_step_mma.cu has append and parts of bf16 by tensor cores, for the usual heads. Here
// blocks of the other query heads of a kv head are neighbours: what they read again is in the
// second-level cache. Sums are fp32. Which part a position is in and the order of every sum depend
// on the position alone, so a longer window changes no bit.

#include <cmath>
#include <type_traits>

#include "kernels/access.cuh"
#include "kernels/decode/decode_launch.hpp"
#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/hopper/warp.cuh"

namespace stowage::kernels::decode {
namespace {

using device::Access;
using execution::Bf16;

constexpr int kLanes = 32, kWarps = 8, kThreads = kWarps * kLanes;
constexpr int kPartRows = static_cast<int>(kPart);
constexpr int kHeads = 4;  ///< query heads that a block serves

template <class S>
__global__ void __launch_bounds__(kThreads) append_kernel(const Attention<S> args) {
  const std::int64_t b = blockIdx.x;
  const int dim = args.head_dim, keys = args.kv_heads * dim;
  const S* from = args.qkv + b * (args.heads + 2 * args.kv_heads) * dim + args.heads * dim;
  const std::int64_t position = args.positions[b];
  for (int i = static_cast<int>(threadIdx.x); i < keys; i += kThreads) {
    const std::int64_t to =
        ((b * args.kv_heads + i / dim) * args.window + position) * dim + i % dim;
    args.keys[to] = from[i];
    args.values[to] = from[keys + i];
  }
}

/// The sum over the lanes of a team, in all of them.
__device__ float team_sum(float value, int lanes) {
  for (int mask = 1; mask < lanes; mask *= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, mask);
  return value;
}
/// The sum over the lanes of a warp's teams that have one's place in theirs.
__device__ float teams_sum(float value, int lanes) {
  for (int mask = lanes; mask < kLanes; mask *= 2)
    value += __shfl_xor_sync(0xFFFFFFFFU, value, mask);
  return value;
}

/// What a block has of a cache.
struct Part {
  std::int64_t first;  ///< element of its first key or value
  int count;           ///< positions
  int head, heads;     ///< the first query head, and how many
};

/// scores(h, t) = scale q_h k_t. A lane keeps its columns of the queries in registers.
template <class S, bool kPacked>
__device__ void make_scores(const Attention<S>& args, const Part& part, const float* q,
                            float (*scores)[kPartRows], int lanes) {
  using Data = Access<S, kPacked>;
  const int dim = args.head_dim, teams = kThreads / lanes;
  const int team = static_cast<int>(threadIdx.x) / lanes;
  const int own = static_cast<int>(threadIdx.x) % lanes * Data::kSize;
  for (int base = 0; base < dim; base += lanes * Data::kSize) {
    const int p = base + own;
    float query[kHeads][Data::kSize] = {};
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
#pragma unroll
      for (int i = 0; i < Data::kSize; ++i)
        if (p < dim) query[h][i] = q[h * dim + p + i];
#pragma unroll 2
    for (int begin = 0; begin < part.count; begin += teams) {
      const int t = begin + team;
      float key[Data::kSize] = {};
      if (p < dim && t < part.count)
        Data::unpack(Data::load(args.keys + part.first + std::int64_t{t} * dim + p), key);
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < Data::kSize; ++i) sum = fmaf(query[h][i], key[i], sum);
        sum = team_sum(sum, lanes);
        if (own == 0 && t < part.count) scores[h][t] = base == 0 ? sum : scores[h][t] + sum;
      }
    }
  }
}

/// Makes a head's scores exp(score - largest). @return largest and sum, in all lanes of a warp
__device__ float2 soften(float* scores, int count, int lane) {
  float largest = -INFINITY;
  for (int t = lane; t < count; t += kLanes) largest = fmaxf(largest, scores[t]);
  largest = hopper::lanes_max<kLanes>(largest);
  float sum = 0;
  for (int t = lane; t < count; t += kLanes) {
    scores[t] = expf(scores[t] - largest);
    sum += scores[t];
  }
  return {largest, hopper::lanes_sum<kLanes>(sum)};
}

/// sums(w, h, p) = sum of weights times values of the positions that warp w takes.
template <class S, bool kPacked>
__device__ void sum_values(const Attention<S>& args, const Part& part,
                           const float (*weights)[kPartRows], float* sums, int lanes) {
  using Data = Access<S, kPacked>;
  const int dim = args.head_dim, teams = kThreads / lanes;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int team = static_cast<int>(threadIdx.x) / lanes;
  const int own = static_cast<int>(threadIdx.x) % lanes * Data::kSize;
  for (int base = 0; base < dim; base += lanes * Data::kSize) {
    const int p = base + own;
    float some[kHeads][Data::kSize] = {};
#pragma unroll 4
    for (int t = team; t < part.count && p < dim; t += teams) {
      float value[Data::kSize];
      Data::unpack(Data::load(args.values + part.first + std::int64_t{t} * dim + p), value);
#pragma unroll
      for (int h = 0; h < kHeads; ++h)
#pragma unroll
        for (int i = 0; i < Data::kSize; ++i)
          some[h][i] = fmaf(weights[h][t], value[i], some[h][i]);
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
#pragma unroll
      for (int i = 0; i < Data::kSize; ++i) {
        const float sum = teams_sum(some[h][i], lanes);
        if (team * lanes % kLanes == 0 && p < dim) sums[(warp * kHeads + h) * dim + p + i] = sum;
      }
  }
}

template <class S, bool kPacked>
__global__ void __launch_bounds__(kThreads) parts_kernel(const Attention<S> args, int lanes) {
  extern __shared__ float shared[];  // q (kHeads, P), sums (kWarps, kHeads, P)
  __shared__ float scores[kHeads][kPartRows];
  const int dim = args.head_dim, group = args.heads / args.kv_heads;
  const int shares = (group + kHeads - 1) / kHeads;
  const int share = static_cast<int>(blockIdx.x) % shares;
  const int kv_head = static_cast<int>(blockIdx.x) / shares % args.kv_heads;
  const int index = static_cast<int>(blockIdx.y);
  const std::int64_t b = static_cast<int>(blockIdx.x) / shares / args.kv_heads;
  const std::int64_t first = index * kPart, length = args.positions[b] + 1;
  if (first >= length) return;
  const Part part{((b * args.kv_heads + kv_head) * args.window + first) * dim,
                  static_cast<int>(min(kPart, length - first)), kv_head * group + share * kHeads,
                  min(kHeads, group - share * kHeads)};
  float* const q = shared;
  float* const sums = shared + kHeads * dim;
  const S* from = args.qkv + (b * (args.heads + 2 * args.kv_heads) + part.head) * dim;
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * dim; i += kThreads)
    q[i] = i < part.heads * dim ? args.scale * device::to_float(from[i]) : 0;
  __syncthreads();
  make_scores<S, kPacked>(args, part, q, scores, lanes);
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const auto result = [&](int h) {
    return args.workspace + ((b * args.heads + part.head + h) * gridDim.y + index) * (dim + 2);
  };
  if (warp < kHeads) {
    const float2 of = soften(scores[warp], part.count, lane);
    if (lane == 0 && warp < part.heads) {
      result(warp)[dim] = of.x;
      result(warp)[dim + 1] = of.y;
    }
  }
  __syncthreads();
  sum_values<S, kPacked>(args, part, scores, sums, lanes);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < part.heads * dim; i += kThreads) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += sums[w * kHeads * dim + i];
    result(i / dim)[i % dim] = sum;
  }
}

constexpr int kColumns = kLanes;

/// Adds what the parts have, brought to the largest score of all: a warp its parts, first to last,
/// then warp after warp.
template <class S>
__global__ void __launch_bounds__(kThreads) combine_kernel(const Attention<S> args, int room) {
  __shared__ float sums[kWarps][kColumns], weights[kWarps], largest[kWarps];
  hopper::griddepcontrol_wait();
  const int dim = args.head_dim, thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanes, warp = thread / kLanes;
  const int p = static_cast<int>(blockIdx.y) * kColumns + lane;
  const std::int64_t row = blockIdx.x, b = row / args.heads;
  const int count = static_cast<int>(args.positions[b] / kPart) + 1;
  const float* parts = args.workspace + row * room * (dim + 2);
  const auto of = [&](int part, int i) { return parts[std::int64_t{part} * (dim + 2) + i]; };
  float most = -INFINITY;
  for (int i = thread; i < count; i += kThreads) most = fmaxf(most, of(i, dim));
  most = hopper::lanes_max<kLanes>(most);
  if (lane == 0) largest[warp] = most;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) most = fmaxf(most, largest[w]);
  float sum = 0, total = 0;
#pragma unroll 8
  for (int i = warp; i < count; i += kWarps) {
    const float weight = expf(of(i, dim) - most);
    total = fmaf(weight, of(i, dim + 1), total);
    if (p < dim) sum = fmaf(weight, of(i, p), sum);
  }
  sums[warp][lane] = sum;
  if (lane == 0) weights[warp] = total;
  __syncthreads();
  if (warp > 0 || p >= dim) return;
  for (int w = 1; w < kWarps; ++w) sum += sums[w][lane], total += weights[w];
  args.o[row * dim + p] = device::round_to<S>(sum / total);
}

/// Lanes that take one key or value: as many as have a pack of it, a power of two.
int team_lanes(int packs) {
  int lanes = 1;
  while (lanes < packs && lanes < kLanes) lanes *= 2;
  return lanes;
}

template <class S>
int launch_simple_parts(const Attention<S>& args, cudaStream_t stream) {
  append_kernel<S><<<static_cast<unsigned>(args.sequences), kThreads, 0, stream>>>(args);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  const int shares = (args.heads / args.kv_heads + kHeads - 1) / kHeads;
  const bool packed = device::whole_packs<S>({args.head_dim}, {args.keys, args.values});
  const int lanes = team_lanes(args.head_dim / (packed ? device::kPackSize<S> : 1));
  const auto floats = static_cast<std::size_t>((kWarps + 1) * kHeads * args.head_dim);
  const dim3 grid(static_cast<unsigned>(args.sequences * args.kv_heads * shares),
                  static_cast<unsigned>(parts(args.window)));
  const auto kernel = packed ? parts_kernel<S, true> : parts_kernel<S, false>;
  kernel<<<grid, kThreads, floats * sizeof(float), stream>>>(args, lanes);
  return cudaGetLastError();
}

template <class S>
int launch_parts(const Attention<S>& args, cudaStream_t stream) {
  if constexpr (std::is_same_v<S, Bf16>)
    if (has_mma(args)) return launch_mma_parts(args, stream);
  return launch_simple_parts(args, stream);
}

}  // namespace

template <class S>
int launch(const Attention<S>& args, void* handle) {
  if (args.sequences == 0) return cudaSuccess;
  const auto stream = static_cast<cudaStream_t>(handle);
  if (const int error = launch_parts(args, stream); error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(args.sequences * args.heads),
                  static_cast<unsigned>((args.head_dim + kColumns - 1) / kColumns));
  return hopper::launch_dependent(combine_kernel<S>, grid, kThreads, 0, stream, args,
                                  static_cast<int>(parts(args.window)));
}

template int launch(const Attention<float>&, void*);
template int launch(const Attention<Bf16>&, void*);

}  // namespace stowage::kernels::decode
