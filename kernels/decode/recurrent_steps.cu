// One more token of each sequence through convolution, scan and delta rule: formulas in
// conv1d_step.hpp, ssd_step.hpp and gated_delta_step.hpp. Bound by memory: each state is read once
// and written once. Sums are fp32, in an order that depends on shapes alone.
//
//   convolution: a thread a channel of a sequence
//   scan, rule:  a warp a row of a state (P, N) at a time, lanes along N, whose packs of four are
//                one access where rows are made of them
//
// The rule needs a row twice, for what it holds of k and then for what k adds. Rows of up to 128
// with one decay stay in registers, others are read again from the first-level cache. A block makes
// the decays of a state's columns once, if each column has one.

#include "execution/dtype.hpp"
#include "kernels/decode/decode_launch.hpp"
#include "kernels/hopper/warp.cuh"
#include "kernels/pack.cuh"

namespace stowage::kernels::decode {
namespace {

using device::round_to;
using device::to_float;
using execution::Bf16;

constexpr int kLanes = 32, kWarps = 8, kThreads = kWarps * kLanes;
constexpr int kRows = 4 * kWarps;  // of a block

__device__ float softplus(float x) { return fmaxf(x, 0.0F) + log1pf(expf(-fabsf(x))); }

template <class S>
__global__ void __launch_bounds__(kThreads) convolution_kernel(const Convolution<S> args) {
  const std::int64_t b = blockIdx.x;
  const int c = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  if (c >= args.channels) return;
  S* rows = args.rows + b * (args.width - 1) * args.channels + c;
  const S* w = args.w + static_cast<std::int64_t>(c) * args.width;
  const bool begins = args.positions[b] == 0;
  float sum = args.b == nullptr ? 0 : to_float(args.b[c]);
  for (int k = 0; k + 1 < args.width; ++k) {
    const S past = begins ? round_to<S>(0) : rows[std::int64_t{k} * args.channels];
    sum += to_float(w[k]) * to_float(past);
    if (k > 0) rows[std::int64_t{k - 1} * args.channels] = past;
  }
  const S x = args.x[b * args.x_stride + c];
  sum += to_float(w[args.width - 1]) * to_float(x);
  rows[std::int64_t{args.width - 2} * args.channels] = x;
  args.y[b * args.channels + c] = round_to<S>(sum / (1 + expf(-sum)));
}

/// kSize neighbouring elements of a row of a state.
template <int kSize>
struct Piece;
template <>
struct Piece<4> {
  __device__ static void load(const float* from, float (&to)[4]) {
    const float4 all = *reinterpret_cast<const float4*>(from);
    to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
  }
  __device__ static void store(float* to, const float (&from)[4]) {
    *reinterpret_cast<float4*>(to) = {from[0], from[1], from[2], from[3]};
  }
};
template <>
struct Piece<1> {
  __device__ static void load(const float* from, float (&to)[1]) { to[0] = *from; }
  __device__ static void store(float* to, const float (&from)[1]) { *to = from[0]; }
};

template <class S, int kSize>
__global__ void __launch_bounds__(kThreads) scan_kernel(const Scan<S> args) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int head = static_cast<int>(blockIdx.x) % args.heads, width = args.state_dim;
  const std::int64_t b = blockIdx.x / args.heads;
  const S* xbc = args.xbc + b * args.xbc_stride;
  const int inner = args.heads * args.head_dim, shared = args.groups * width;
  const S* of_b = xbc + inner + head / (args.heads / args.groups) * width;
  const S* of_c = of_b + shared;
  const float raw = to_float(args.dt[b * args.dt_stride + head]) + to_float(args.dt_bias[head]);
  const float dt = fminf(fmaxf(softplus(raw), args.dt_min), args.dt_max);
  const bool begins = args.positions[b] == 0;
  const float decay = begins ? 0 : expf(-dt * expf(to_float(args.a_log[head])));
  const float skip = to_float(args.d[head]);
  const int end = min((static_cast<int>(blockIdx.y) + 1) * kRows, args.head_dim);
  for (int p = static_cast<int>(blockIdx.y) * kRows + warp; p < end; p += kWarps) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * args.head_dim + p;
    float* state = args.state + row * width;
    const float x = to_float(xbc[head * args.head_dim + p]);
    float sum = 0;
    for (int n = lane * kSize; n < width; n += kLanes * kSize) {
      float h[kSize] = {};
      if (!begins) Piece<kSize>::load(state + n, h);
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        h[i] = decay * h[i] + dt * x * to_float(of_b[n + i]);
        sum += h[i] * to_float(of_c[n + i]);
      }
      Piece<kSize>::store(state + n, h);
    }
    sum = hopper::lanes_sum<kLanes>(sum);
    if (lane == 0) args.y[row] = round_to<S>(sum + skip * x);
  }
}

/// 1 / sqrt(|x|^2 + epsilon) of a head of q or k.
template <class S>
__device__ float norm_factor(const S* x, int width, int lane, float epsilon) {
  float squares = 0;
  for (int n = lane; n < width; n += kLanes) {
    const float value = to_float(x[n]);
    squares = fmaf(value, value, squares);
  }
  return rsqrtf(hopper::lanes_sum<kLanes>(squares) + epsilon);
}

/// What a head of a sequence has besides its state.
template <class S>
struct Rule {
  const S* q;
  const S* k;
  const S* v;
  float beta, rate;
  bool begins;

  __device__ Rule(const DeltaRule<S>& args, std::int64_t b, int head)
      : q(args.qkv + b * args.qkv_stride +
          head / (args.value_heads / args.key_heads) * args.key_dim),
        k(q + args.key_heads * args.key_dim),
        v(args.qkv + b * args.qkv_stride + 2 * args.key_heads * args.key_dim +
          head * args.value_dim),
        beta(1 / (1 + expf(-to_float(args.ba[b * args.ba_stride + head])))),
        rate(expf(to_float(args.a_log[head]))),
        begins(args.positions[b] == 0) {}
};

/// Of a head with one decay for all columns.
template <class S>
__device__ float head_decay(const DeltaRule<S>& args, const Rule<S>& rule, std::int64_t b,
                            int head) {
  const float a = to_float(args.ba[b * args.ba_stride + args.value_heads + head]) +
                  to_float(args.dt_bias[head]);
  return rule.begins ? 0 : expf(-softplus(a) * rule.rate);
}

/// Rows of at most kLanes packs: a lane's packs of all rows of a warp are under way at once, and
/// each is read once.
template <class S>
__global__ void __launch_bounds__(kThreads) short_rule_kernel(const DeltaRule<S> args) {
  constexpr int kSize = 4, kEach = kRows / kWarps;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int head = static_cast<int>(blockIdx.x) % args.value_heads, width = args.key_dim;
  const int n = lane * kSize, first = static_cast<int>(blockIdx.y) * kRows + warp;
  const std::int64_t b = blockIdx.x / args.value_heads;
  const Rule<S> rule(args, b, head);
  const float decay = head_decay(args, rule, b, head);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * args.value_dim + first;
  float s[kEach][kSize] = {};
#pragma unroll
  for (int r = 0; r < kEach; ++r)
    if (!rule.begins && n < width && first + r * kWarps < args.value_dim)
      Piece<kSize>::load(args.state + (row + r * kWarps) * width + n, s[r]);
  float k[kSize], q[kSize], k_squares = 0, q_squares = 0;
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    k[i] = n < width ? to_float(rule.k[n + i]) : 0;
    q[i] = n < width ? to_float(rule.q[n + i]) : 0;
    k_squares = fmaf(k[i], k[i], k_squares);
    q_squares = fmaf(q[i], q[i], q_squares);
  }
  const float k_factor = rsqrtf(hopper::lanes_sum<kLanes>(k_squares) + args.epsilon);
  const float q_factor = rsqrtf(hopper::lanes_sum<kLanes>(q_squares) + args.epsilon) *
                         rsqrtf(static_cast<float>(width));
#pragma unroll
  for (int i = 0; i < kSize; ++i) k[i] *= k_factor, q[i] *= q_factor;
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    const int p = first + r * kWarps;
    if (p >= args.value_dim) break;
    float kept = 0, sum = 0;
#pragma unroll
    for (int i = 0; i < kSize; ++i) kept = fmaf(decay * s[r][i], k[i], kept);
    const float u = rule.beta * (to_float(rule.v[p]) - hopper::lanes_sum<kLanes>(kept));
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      s[r][i] = fmaf(u, k[i], decay * s[r][i]);
      sum = fmaf(s[r][i], q[i], sum);
    }
    if (n < width) Piece<kSize>::store(args.state + (row + r * kWarps) * width + n, s[r]);
    sum = hopper::lanes_sum<kLanes>(sum);
    if (lane == 0) args.y[row + r * kWarps] = round_to<S>(sum);
  }
}

/// Rows of any length, read twice: for what they hold of k, and for what k adds.
template <class S, int kSize, bool kChannels>
__global__ void __launch_bounds__(kThreads) rule_kernel(const DeltaRule<S> args) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int head = static_cast<int>(blockIdx.x) % args.value_heads, width = args.key_dim;
  const std::int64_t b = blockIdx.x / args.value_heads;
  const Rule<S> rule(args, b, head);
  const float q_factor =
      norm_factor(rule.q, width, lane, args.epsilon) * rsqrtf(static_cast<float>(width));
  const float k_factor = norm_factor(rule.k, width, lane, args.epsilon);
  extern __shared__ float decays[];  // of the columns
  float decay = 0;
  if constexpr (kChannels) {
    const S* const a = args.a + blockIdx.x * static_cast<std::int64_t>(width);
    const S* const bias = args.dt_bias + static_cast<std::int64_t>(head) * width;
    for (int n = static_cast<int>(threadIdx.x); n < width; n += kThreads)
      decays[n] = expf(-softplus(to_float(a[n]) + to_float(bias[n])) * rule.rate);
    __syncthreads();
  } else {
    decay = head_decay(args, rule, b, head);
  }
  const auto decay_of = [&](int n) { return kChannels ? decays[n] : decay; };
  const int end = min((static_cast<int>(blockIdx.y) + 1) * kRows, args.value_dim);
  for (int p = static_cast<int>(blockIdx.y) * kRows + warp; p < end; p += kWarps) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * args.value_dim + p;
    float* state = args.state + row * width;
    float kept = 0;
    for (int n = lane * kSize; n < width && !rule.begins; n += kLanes * kSize) {
      float s[kSize];
      Piece<kSize>::load(state + n, s);
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        kept += decay_of(n + i) * s[i] * (to_float(rule.k[n + i]) * k_factor);
    }
    const float u = rule.beta * (to_float(rule.v[p]) - hopper::lanes_sum<kLanes>(kept));
    float sum = 0;
    for (int n = lane * kSize; n < width; n += kLanes * kSize) {
      float s[kSize] = {};
      if (!rule.begins) Piece<kSize>::load(state + n, s);
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        s[i] = decay_of(n + i) * s[i] + u * (to_float(rule.k[n + i]) * k_factor);
        sum += s[i] * (to_float(rule.q[n + i]) * q_factor);
      }
      Piece<kSize>::store(state + n, s);
    }
    sum = hopper::lanes_sum<kLanes>(sum);
    if (lane == 0) args.y[row] = round_to<S>(sum);
  }
}

/// A block for each of `heads` states and kRows of their `rows`.
dim3 grid_of(std::int64_t heads, std::int64_t rows) {
  return {static_cast<unsigned>(heads), static_cast<unsigned>((rows + kRows - 1) / kRows)};
}

bool whole_pieces(int width, const float* state) {
  return width % 4 == 0 && reinterpret_cast<std::uintptr_t>(state) % sizeof(float4) == 0;
}

}  // namespace

template <class S>
int launch(const Convolution<S>& args, void* stream) {
  if (args.sequences == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(args.sequences),
                  static_cast<unsigned>((args.channels + kThreads - 1) / kThreads));
  convolution_kernel<S><<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(args);
  return cudaGetLastError();
}

template <class S>
int launch(const Scan<S>& args, void* stream) {
  if (args.sequences == 0) return cudaSuccess;
  const auto kernel =
      whole_pieces(args.state_dim, args.state) ? scan_kernel<S, 4> : scan_kernel<S, 1>;
  kernel<<<grid_of(args.sequences * args.heads, args.head_dim), kThreads, 0,
           static_cast<cudaStream_t>(stream)>>>(args);
  return cudaGetLastError();
}

template <class S>
int launch(const DeltaRule<S>& args, void* stream) {
  if (args.sequences == 0) return cudaSuccess;
  const bool whole = whole_pieces(args.key_dim, args.state), channels = args.a != nullptr;
  const auto one_decay = !whole                       ? rule_kernel<S, 1, false>
                         : args.key_dim <= 4 * kLanes ? short_rule_kernel<S>
                                                      : rule_kernel<S, 4, false>;
  const auto columns = whole ? rule_kernel<S, 4, true> : rule_kernel<S, 1, true>;
  const auto bytes = channels ? static_cast<std::size_t>(args.key_dim) * sizeof(float) : 0;
  const auto kernel = channels ? columns : one_decay;
  kernel<<<grid_of(args.sequences * args.value_heads, args.value_dim), kThreads, bytes,
           static_cast<cudaStream_t>(stream)>>>(args);
  return cudaGetLastError();
}

template int launch(const Convolution<float>&, void*);
template int launch(const Convolution<Bf16>&, void*);
template int launch(const Scan<float>&, void*);
template int launch(const Scan<Bf16>&, void*);
template int launch(const DeltaRule<float>&, void*);
template int launch(const DeltaRule<Bf16>&, void*);

}  // namespace stowage::kernels::decode
