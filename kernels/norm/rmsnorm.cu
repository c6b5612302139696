// Residual sum and RMSNorm of rows (n, D), and the gradient; formulas in rmsnorm.hpp.
//
// Bound by memory: a row is read once, held in the registers of a team of warps (norm_team.cuh) and
// written once. The forward gives each team one row. The backward gives each block rows b, b + P,
// ... for fixed P, keeps the block's sum of dy * h in registers and writes it once as one of P
// partial sums, which partial_sums.cu adds: two stages, no atomics, the same bits every time.
// Rows that are not whole packs of 16 bytes, unaligned ones, and very wide ones take a plain path
// that reads a row twice. Sums are fp32.
// Limit of the backward: 91 to 93 % of a copy of as many bytes; the partial sums' stage costs 3 us,
// blocks that drift apart in the rows the rest.

#include <algorithm>

#include "kernels/access.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/magnitude.cuh"
#include "kernels/norm/norm_launch.hpp"
#include "kernels/norm/norm_team.cuh"

namespace stowage::kernels::norm {
namespace {

using device::kPackSize;
using execution::Bf16;

constexpr int kPlainThreads = 256;

template <class S>
__device__ __forceinline__ const uint4* packs(const S* row) {
  return reinterpret_cast<const uint4*>(row);
}
template <class S>
__device__ __forceinline__ uint4* packs(S* row) {
  return reinterpret_cast<uint4*>(row);
}

template <class S, int kWarps, int kPacks, bool kMeasured>
__global__ void __launch_bounds__(Team<kWarps, kPacks>::kThreads)
    forward_kernel(const RmsnormForward<S> args) {
  using Row = Team<kWarps, kPacks>;
  constexpr int kSize = kPackSize<S>;
  __shared__ typename Row::Slots slots;
  int turn = 0;
  const std::int64_t row = std::int64_t{blockIdx.x} * Row::kTeams + Row::index();
  if (row >= args.rows) return;  // whole teams
  [[maybe_unused]] std::uint32_t largest = 0, known = 0;
  if constexpr (kMeasured) known = device::known_largest(args.amax);
  const std::int64_t at = row * args.width;
  const int count = static_cast<int>(args.width / kSize);
  uint4 x[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    x[p] = Row::pack(p) < count ? packs(args.x + at)[Row::pack(p)] : uint4{};
  if (args.delta != nullptr) {
    uint4 delta[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      delta[p] = Row::pack(p) < count ? packs(args.delta + at)[Row::pack(p)] : uint4{};
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      float a[kSize], b[kSize];
      device::unpack<S>(x[p], a);
      device::unpack<S>(delta[p], b);
#pragma unroll
      for (int i = 0; i < kSize; ++i) a[i] += b[i];
      x[p] = device::pack<S>(a);
    }
  }
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    float values[kSize];
    device::unpack<S>(x[p], values);
#pragma unroll
    for (int i = 0; i < kSize; ++i) squares += values[i] * values[i];
    if (args.sum != nullptr && Row::pack(p) < count) packs(args.sum + at)[Row::pack(p)] = x[p];
  }
  squares = Row::sum(squares, slots, turn);
  const float rstd = 1.0F / sqrtf(squares / static_cast<float>(args.width) + args.eps);
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (Row::pack(p) >= count) continue;
    float values[kSize], w[kSize];
    device::unpack<S>(x[p], values);
    device::unpack<S>(__ldg(packs(args.w) + Row::pack(p)), w);
#pragma unroll
    for (int i = 0; i < kSize; ++i) values[i] = values[i] * rstd * (w[i] + args.weight_offset);
    const uint4 y = device::pack<S>(values);
    packs(args.y + at)[Row::pack(p)] = y;
    if constexpr (kMeasured) largest = max(largest, device::largest_of<S>(y));
  }
  if (Row::pack(0) == 0) args.rstd[row] = rstd;
  if constexpr (kMeasured) device::add_largest(largest, known, args.amax);
}

template <class S, bool kMeasured>
__global__ void __launch_bounds__(kPlainThreads)
    forward_plain_kernel(const RmsnormForward<S> args) {
  const std::int64_t row = blockIdx.x, at = row * args.width;
  const S* from = args.sum != nullptr ? args.sum : args.x;
  float squares = 0;
  for (std::int64_t j = threadIdx.x; j < args.width; j += kPlainThreads) {
    float value = device::to_float(args.x[at + j]);
    if (args.delta != nullptr) value += device::to_float(args.delta[at + j]);
    const S rounded = device::round_to<S>(value);
    if (args.sum != nullptr) args.sum[at + j] = rounded;
    value = device::to_float(rounded);
    squares += value * value;
  }
  squares = block_sum(squares);
  const float rstd = 1.0F / sqrtf(squares / static_cast<float>(args.width) + args.eps);
  [[maybe_unused]] std::uint32_t largest = 0;
  for (std::int64_t j = threadIdx.x; j < args.width; j += kPlainThreads) {
    const S y = device::round_to<S>(device::to_float(from[at + j]) * rstd *
                                    (device::to_float(args.w[j]) + args.weight_offset));
    args.y[at + j] = y;
    if constexpr (kMeasured) largest = max(largest, device::largest_of<S>(y));
  }
  if (threadIdx.x == 0) args.rstd[row] = rstd;
  if constexpr (kMeasured) device::add_largest(largest, args.amax);
}

// Adds the sums of the block's teams in order and stores them as the block's partial row. With
// several teams they meet in shared memory, of one row.
template <class S, int kWarps, int kPacks>
__device__ void store_partial(const float (&dw)[kPacks][kPackSize<S>], float* partial, int count) {
  using Row = Team<kWarps, kPacks>;
  constexpr int kSize = kPackSize<S>;
  extern __shared__ float4 shared[];
  auto* meeting = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int team = 0; team < Row::kTeams; ++team) {
    if (Row::index() == team) {
      float* to = team == Row::kTeams - 1 ? partial : meeting;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (Row::pack(p) >= count) continue;
        const int first = Row::pack(p) * kSize;
#pragma unroll
        for (int i = 0; i < kSize; i += 4) {
          float4 sum{dw[p][i], dw[p][i + 1], dw[p][i + 2], dw[p][i + 3]};
          if (team > 0) {
            const float4 before = shared[(first + i) / 4];
            sum = {before.x + sum.x, before.y + sum.y, before.z + sum.z, before.w + sum.w};
          }
          *reinterpret_cast<float4*>(to + first + i) = sum;
        }
      }
    }
    if (team < Row::kTeams - 1) __syncthreads();
  }
}

template <class S, int kWarps, int kPacks, bool kMeasured>
__global__ void __launch_bounds__(Team<kWarps, kPacks>::kThreads, kWarps > 8 ? 1 : 2)
    backward_kernel(const RmsnormBackward<S> args) {
  using Row = Team<kWarps, kPacks>;
  constexpr int kSize = kPackSize<S>;
  __shared__ typename Row::Slots slots;
  int turn = 0;
  const int count = static_cast<int>(args.width / kSize);
  float dw[kPacks][kSize] = {};
  [[maybe_unused]] std::uint32_t largest = 0;
  uint4 w[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    w[p] = Row::pack(p) < count ? packs(args.w)[Row::pack(p)] : uint4{};
  for (std::int64_t row = std::int64_t{blockIdx.x} * Row::kTeams + Row::index(); row < args.rows;
       row += std::int64_t{gridDim.x} * Row::kTeams) {
    const std::int64_t at = row * args.width;
    uint4 dy[kPacks], x[kPacks], residual[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const bool inside = Row::pack(p) < count;
      dy[p] = inside ? packs(args.dy + at)[Row::pack(p)] : uint4{};
      x[p] = inside ? packs(args.x + at)[Row::pack(p)] : uint4{};
      residual[p] =
          inside && args.dresidual != nullptr ? packs(args.dresidual + at)[Row::pack(p)] : uint4{};
    }
    const float rstd = args.rstd[row];
    float projection = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      float a[kSize], b[kSize], c[kSize];
      device::unpack<S>(dy[p], a);
      device::unpack<S>(w[p], b);
      device::unpack<S>(x[p], c);
#pragma unroll
      for (int i = 0; i < kSize; ++i) projection += a[i] * (b[i] + args.weight_offset) * c[i];
    }
    const float mean = Row::sum(projection, slots, turn) * rstd / static_cast<float>(args.width);
    stay_packed(dy);
    stay_packed(x);
    stay_packed(w);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      float gradient[kSize], scale[kSize], value[kSize], sum[kSize];
      device::unpack<S>(dy[p], gradient);
      device::unpack<S>(w[p], scale);
      device::unpack<S>(x[p], value);
      device::unpack<S>(residual[p], sum);
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        const float h = value[i] * rstd;
        dw[p][i] += gradient[i] * h;
        sum[i] += rstd * (gradient[i] * (scale[i] + args.weight_offset) - h * mean);
      }
      if (Row::pack(p) >= count) continue;
      const uint4 dx = device::pack<S>(sum);
      packs(args.dx + at)[Row::pack(p)] = dx;
      if constexpr (kMeasured) largest = max(largest, device::largest_of<S>(dx));
    }
  }
  if constexpr (kMeasured) device::add_largest(largest, args.amax);
  hopper::griddepcontrol_launch_dependents();
  store_partial<S, kWarps, kPacks>(dw, args.partials + std::int64_t{blockIdx.x} * args.width,
                                   count);
}

template <class S, bool kMeasured>
__global__ void __launch_bounds__(kPlainThreads)
    backward_plain_kernel(const RmsnormBackward<S> args) {
  float* partial = args.partials + std::int64_t{blockIdx.x} * args.width;
  [[maybe_unused]] std::uint32_t largest = 0;
  for (std::int64_t j = threadIdx.x; j < args.width; j += kPlainThreads) partial[j] = 0;
  for (std::int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const std::int64_t at = row * args.width;
    const float rstd = args.rstd[row];
    float projection = 0;
    for (std::int64_t j = threadIdx.x; j < args.width; j += kPlainThreads)
      projection += device::to_float(args.dy[at + j]) *
                    (device::to_float(args.w[j]) + args.weight_offset) *
                    device::to_float(args.x[at + j]);
    const float mean = block_sum(projection) * rstd / static_cast<float>(args.width);
    for (std::int64_t j = threadIdx.x; j < args.width; j += kPlainThreads) {
      const float gradient = device::to_float(args.dy[at + j]);
      const float h = device::to_float(args.x[at + j]) * rstd;
      const float residual =
          args.dresidual != nullptr ? device::to_float(args.dresidual[at + j]) : 0.0F;
      partial[j] += gradient * h;
      const S dx = device::round_to<S>(
          residual +
          rstd * (gradient * (device::to_float(args.w[j]) + args.weight_offset) - h * mean));
      args.dx[at + j] = dx;
      if constexpr (kMeasured) largest = max(largest, device::largest_of<S>(dx));
    }
  }
  if constexpr (kMeasured) device::add_largest(largest, args.amax);
}

}  // namespace

template <class S>
int launch(const RmsnormForward<S>& args, void* handle) {
  const auto stream = static_cast<cudaStream_t>(handle);
  if (const cudaError_t code = device::clear_largest(args.amax, stream); code != cudaSuccess)
    return code;
  if (args.rows == 0) return cudaSuccess;
  device::with_measured(args.amax != nullptr, [&]<bool kMeasured>() {
    const bool served =
        device::whole_packs<S>({args.width}, {args.x, args.delta, args.w, args.sum, args.y}) &&
        with_team<4>(args.width / kPackSize<S>, [&]<int kWarps, int kPacks>() {
          using Row = Team<kWarps, kPacks>;
          const auto blocks = static_cast<unsigned>((args.rows + Row::kTeams - 1) / Row::kTeams);
          forward_kernel<S, kWarps, kPacks, kMeasured><<<blocks, Row::kThreads, 0, stream>>>(args);
        });
    if (!served)
      forward_plain_kernel<S, kMeasured>
          <<<static_cast<unsigned>(args.rows), kPlainThreads, 0, stream>>>(args);
  });
  return cudaGetLastError();
}

template <class S>
int launch(const RmsnormBackward<S>& args, void* handle) {
  const auto stream = static_cast<cudaStream_t>(handle);
  std::int64_t blocks = std::min(args.rows, kPartials);
  if (const cudaError_t code = device::clear_largest(args.amax, stream); code != cudaSuccess)
    return code;
  if (args.rows > 0) {
    device::with_measured(args.amax != nullptr, [&]<bool kMeasured>() {
      const bool served =
          device::whole_packs<S>({args.width},
                                 {args.dy, args.x, args.w, args.dresidual, args.dx}) &&
          with_team<4>(args.width / kPackSize<S>, [&]<int kWarps, int kPacks>() {
            using Row = Team<kWarps, kPacks>;
            blocks = std::min((args.rows + Row::kTeams - 1) / Row::kTeams, kPartials);
            const std::size_t shared = Row::kTeams > 1 ? args.width * sizeof(float) : 0;
            backward_kernel<S, kWarps, kPacks, kMeasured>
                <<<static_cast<unsigned>(blocks), Row::kThreads, shared, stream>>>(args);
          });
      if (!served)
        backward_plain_kernel<S, kMeasured>
            <<<static_cast<unsigned>(blocks), kPlainThreads, 0, stream>>>(args);
    });
    if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) return code;
  }
  return launch_partial_sums(blocks, args.width, args.partials, args.dw, args.accumulate, handle);
}

template int launch(const RmsnormForward<float>&, void*);
template int launch(const RmsnormForward<Bf16>&, void*);
template int launch(const RmsnormBackward<float>&, void*);
template int launch(const RmsnormBackward<Bf16>&, void*);

}  // namespace stowage::kernels::norm
