// The gated group norm of a Mamba-2 mixer, and its gradient; formulas in gated_rmsnorm.hpp.
//
// As rmsnorm.cu, with a team of warps for one group of one row. Neighbouring teams hold
// neighbouring groups, so that a block reads whole rows. In the backward a team keeps its group and
// walks through the rows with a fixed stride, keeps its sum of dout * h in registers and stores it
// as its part of a partial row. Both sums of a row (of squares and of dout * w * v) are made
// together: neither needs rstd. Sigmoid is 2^x and a reciprocal on the special-function unit.

#include <algorithm>

#include "kernels/access.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/magnitude.cuh"
#include "kernels/norm/norm_launch.hpp"
#include "kernels/norm/norm_team.cuh"
#include "kernels/silu.cuh"

namespace stowage::kernels::norm {
namespace {

using device::kPackSize;
using device::sigmoid;
using execution::Bf16;

constexpr int kPlainThreads = 128;

// Where a team works: a group, and its first row.
struct Part {
  std::int64_t row, first;  // first element of the group in a row
};

template <class Row>
__device__ Part part_of_team(std::int64_t groups, std::int64_t size) {
  const std::int64_t team = std::int64_t{blockIdx.x} * Row::kTeams + Row::index();
  return {team / groups, team % groups * size};
}

__device__ __forceinline__ uint4 load(const void* row, int pack, int count) {
  return pack < count ? static_cast<const uint4*>(row)[pack] : uint4{};
}

/// Of a group of which this rank has `size` columns, and these squares.
__device__ __forceinline__ float make_rstd(const GroupSharePointers<float>& shares, float squares,
                                           std::int64_t row, std::int64_t size, float eps) {
  if (shares.shared()) squares = shares.sum(shares.squares, row);
  return 1.0F / sqrtf(squares / static_cast<float>(size * shares.count) + eps);
}

template <class S, int kWarps, int kPacks, bool kMeasured>
__global__ void __launch_bounds__(Team<kWarps, kPacks>::kThreads)
    forward_kernel(const GatedForward<S> args) {
  using Row = Team<kWarps, kPacks>;
  constexpr int kSize = kPackSize<S>;
  __shared__ typename Row::Slots slots;
  int turn = 0;
  const std::int64_t size = args.width / args.groups;
  const auto [row, first] = part_of_team<Row>(args.groups, size);
  if (row >= args.rows) return;  // whole teams
  [[maybe_unused]] std::uint32_t largest = 0, known = 0;
  if constexpr (kMeasured) known = device::known_largest(args.amax);
  const int count = static_cast<int>(size / kSize);
  uint4 y[kPacks], z[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    y[p] = load(args.y + row * args.width + first, Row::pack(p), count);
    z[p] = load(args.z + row * args.z_stride + first, Row::pack(p), count);
  }
  float gated[kPacks][kSize], squares = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    float gate[kSize];
    device::unpack<S>(y[p], gated[p]);
    device::unpack<S>(z[p], gate);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      gated[p][i] *= gate[i] * sigmoid(gate[i]);
      squares += gated[p][i] * gated[p][i];
    }
  }
  squares = Row::sum(squares, slots, turn);
  const float rstd = make_rstd(args.shares, squares, row, size, args.eps);
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (Row::pack(p) >= count) continue;
    float w[kSize];
    device::unpack<S>(load(args.w + first, Row::pack(p), count), w);
#pragma unroll
    for (int i = 0; i < kSize; ++i) w[i] *= gated[p][i] * rstd;
    const uint4 out = device::pack<S>(w);
    reinterpret_cast<uint4*>(args.out + row * args.width + first)[Row::pack(p)] = out;
    if constexpr (kMeasured) largest = max(largest, device::largest_of<S>(out));
  }
  if constexpr (kMeasured) device::add_largest(largest, known, args.amax);
}

template <class S, bool kMeasured>
__global__ void __launch_bounds__(kPlainThreads) forward_plain_kernel(const GatedForward<S> args) {
  const std::int64_t size = args.width / args.groups;
  const std::int64_t row = blockIdx.x / args.groups, first = blockIdx.x % args.groups * size;
  const S* y = args.y + row * args.width + first;
  const S* z = args.z + row * args.z_stride + first;
  float squares = 0;
  for (std::int64_t j = threadIdx.x; j < size; j += kPlainThreads) {
    const float gate = device::to_float(z[j]);
    const float gated = device::to_float(y[j]) * gate * sigmoid(gate);
    squares += gated * gated;
  }
  squares = block_sum(squares);
  const float rstd = make_rstd(args.shares, squares, row, size, args.eps);
  [[maybe_unused]] std::uint32_t largest = 0;
  for (std::int64_t j = threadIdx.x; j < size; j += kPlainThreads) {
    const float gate = device::to_float(z[j]);
    const float gated = device::to_float(y[j]) * gate * sigmoid(gate);
    const S out = device::round_to<S>(gated * rstd * device::to_float(args.w[first + j]));
    args.out[row * args.width + first + j] = out;
    if constexpr (kMeasured) largest = max(largest, device::largest_of<S>(out));
  }
  if constexpr (kMeasured) device::add_largest(largest, args.amax);
}

// What the gradient of one element is made of.
struct Scales {
  float rstd, mean;  // mean of g * h over the group
};

// dy, dz and the share of dw of one element.
__device__ __forceinline__ void element_backward(const Scales& scales, float dout, float w, float y,
                                                 float z, float gate, float& dy, float& dz,
                                                 float& dw) {
  const float h = y * z * gate * scales.rstd;
  const float dgated = scales.rstd * (dout * w - h * scales.mean);
  dw += dout * h;
  dy = dgated * z * gate;
  dz = dgated * y * device::silu_derivative(z, gate);
}

__device__ __forceinline__ Scales make_scales(const GroupSharePointers<float>& shares,
                                              float squares, float projection, std::int64_t row,
                                              std::int64_t size, float eps) {
  const float rstd = make_rstd(shares, squares, row, size, eps);
  if (shares.shared()) projection = shares.sum(shares.projections, row);
  return {rstd, projection * rstd / static_cast<float>(size * shares.count)};
}

template <class S, int kWarps, int kPacks, bool kMeasured>
__global__ void __launch_bounds__(Team<kWarps, kPacks>::kThreads, kWarps > 8 ? 1 : 2)
    backward_kernel(const GatedBackward<S> args, std::int64_t partials) {
  using Row = Team<kWarps, kPacks>;
  constexpr int kSize = kPackSize<S>;
  __shared__ typename Row::Slots slots;
  hopper::griddepcontrol_launch_dependents();  // the sums line up for what becomes free
  int turn = 0;
  const std::int64_t size = args.width / args.groups;
  const auto [part, first] = part_of_team<Row>(args.groups, size);
  if (part >= partials) return;  // whole teams
  const int count = static_cast<int>(size / kSize);
  float dw[kPacks][kSize] = {};
  [[maybe_unused]] std::uint32_t largest = 0;
  for (std::int64_t row = part; row < args.rows; row += partials) {
    const std::int64_t at = row * args.width + first;
    uint4 dout[kPacks], y[kPacks], z[kPacks], w[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      dout[p] = load(args.dout + at, Row::pack(p), count);
      y[p] = load(args.y + at, Row::pack(p), count);
      z[p] = load(args.z + row * args.z_stride + first, Row::pack(p), count);
      w[p] = load(args.w + first, Row::pack(p), count);
    }
    float gate[kPacks][kSize], squares = 0, projection = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      float a[kSize], b[kSize], c[kSize], d[kSize];
      device::unpack<S>(dout[p], a);
      device::unpack<S>(y[p], b);
      device::unpack<S>(z[p], c);
      device::unpack<S>(w[p], d);
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        gate[p][i] = sigmoid(c[i]);
        const float gated = b[i] * c[i] * gate[p][i];
        squares += gated * gated;
        projection += a[i] * d[i] * gated;
      }
    }
    squares = Row::sum(squares, slots, turn);
    projection = Row::sum(projection, slots, turn);
    const Scales scales = make_scales(args.shares, squares, projection, row, size, args.eps);
    stay_packed(dout);
    stay_packed(y);
    stay_packed(z);
    stay_packed(w);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (Row::pack(p) >= count) continue;
      float a[kSize], b[kSize], c[kSize], d[kSize], dy[kSize], dz[kSize];
      device::unpack<S>(dout[p], a);
      device::unpack<S>(y[p], b);
      device::unpack<S>(z[p], c);
      device::unpack<S>(w[p], d);
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        element_backward(scales, a[i], d[i], b[i], c[i], gate[p][i], dy[i], dz[i], dw[p][i]);
      reinterpret_cast<uint4*>(args.dy + at)[Row::pack(p)] = device::pack<S>(dy);
      const uint4 stored = device::pack<S>(dz);
      reinterpret_cast<uint4*>(args.dz + row * args.dz_stride + first)[Row::pack(p)] = stored;
      if constexpr (kMeasured) largest = max(largest, device::largest_of<S>(stored));
    }
  }
  if constexpr (kMeasured) device::add_largest(largest, args.amax);
  auto* partial = reinterpret_cast<float4*>(args.partials + part * args.width + first);
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (Row::pack(p) >= count) continue;
#pragma unroll
    for (int i = 0; i < kSize; i += 4)
      partial[(Row::pack(p) * kSize + i) / 4] = {dw[p][i], dw[p][i + 1], dw[p][i + 2],
                                                 dw[p][i + 3]};
  }
}

template <class S, bool kMeasured>
__global__ void __launch_bounds__(kPlainThreads)
    backward_plain_kernel(const GatedBackward<S> args, std::int64_t partials) {
  const std::int64_t size = args.width / args.groups;
  const std::int64_t part = blockIdx.x / args.groups, first = blockIdx.x % args.groups * size;
  float* partial = args.partials + part * args.width + first;
  [[maybe_unused]] std::uint32_t largest = 0;
  for (std::int64_t j = threadIdx.x; j < size; j += kPlainThreads) partial[j] = 0;
  for (std::int64_t row = part; row < args.rows; row += partials) {
    const S* dout = args.dout + row * args.width + first;
    const S* y = args.y + row * args.width + first;
    const S* z = args.z + row * args.z_stride + first;
    float squares = 0, projection = 0;
    for (std::int64_t j = threadIdx.x; j < size; j += kPlainThreads) {
      const float gate = device::to_float(z[j]);
      const float gated = device::to_float(y[j]) * gate * sigmoid(gate);
      squares += gated * gated;
      projection += device::to_float(dout[j]) * device::to_float(args.w[first + j]) * gated;
    }
    squares = block_sum(squares);
    projection = block_sum(projection);
    const Scales scales = make_scales(args.shares, squares, projection, row, size, args.eps);
    for (std::int64_t j = threadIdx.x; j < size; j += kPlainThreads) {
      const float gate = device::to_float(z[j]);
      float dy, dz, dw = 0;
      element_backward(scales, device::to_float(dout[j]), device::to_float(args.w[first + j]),
                       device::to_float(y[j]), gate, sigmoid(gate), dy, dz, dw);
      args.dy[row * args.width + first + j] = device::round_to<S>(dy);
      const S stored = device::round_to<S>(dz);
      args.dz[row * args.dz_stride + first + j] = stored;
      if constexpr (kMeasured) largest = max(largest, device::largest_of<S>(stored));
      partial[j] += dw;
    }
  }
  if constexpr (kMeasured) device::add_largest(largest, args.amax);
}

}  // namespace

template <class S>
int launch(const GatedForward<S>& args, void* handle) {
  const auto stream = static_cast<cudaStream_t>(handle);
  if (const cudaError_t code = device::clear_largest(args.amax, stream); code != cudaSuccess)
    return code;
  if (args.rows == 0) return cudaSuccess;
  const std::int64_t size = args.width / args.groups, parts = args.rows * args.groups;
  device::with_measured(args.amax != nullptr, [&]<bool kMeasured>() {
    const bool served =
        device::whole_packs<S>({size, args.z_stride}, {args.y, args.z, args.w, args.out}) &&
        with_team<4>(size / kPackSize<S>, [&]<int kWarps, int kPacks>() {
          using Row = Team<kWarps, kPacks>;
          const auto blocks = static_cast<unsigned>((parts + Row::kTeams - 1) / Row::kTeams);
          forward_kernel<S, kWarps, kPacks, kMeasured><<<blocks, Row::kThreads, 0, stream>>>(args);
        });
    if (!served)
      forward_plain_kernel<S, kMeasured>
          <<<static_cast<unsigned>(parts), kPlainThreads, 0, stream>>>(args);
  });
  return cudaGetLastError();
}

template <class S>
int launch(const GatedBackward<S>& args, void* handle) {
  const auto stream = static_cast<cudaStream_t>(handle);
  const std::int64_t size = args.width / args.groups;
  const std::int64_t partials = std::min(args.rows, kPartials);
  const std::int64_t parts = partials * args.groups;
  if (const cudaError_t code = device::clear_largest(args.amax, stream); code != cudaSuccess)
    return code;
  if (args.rows > 0) {
    device::with_measured(args.amax != nullptr, [&]<bool kMeasured>() {
      const bool served =
          device::whole_packs<S>({size, args.z_stride, args.dz_stride},
                                 {args.dout, args.y, args.z, args.w, args.dy, args.dz}) &&
          with_team<2>(size / kPackSize<S>, [&]<int kWarps, int kPacks>() {
            using Row = Team<kWarps, kPacks>;
            const auto blocks = static_cast<unsigned>((parts + Row::kTeams - 1) / Row::kTeams);
            backward_kernel<S, kWarps, kPacks, kMeasured>
                <<<blocks, Row::kThreads, 0, stream>>>(args, partials);
          });
      if (!served)
        backward_plain_kernel<S, kMeasured>
            <<<static_cast<unsigned>(parts), kPlainThreads, 0, stream>>>(args, partials);
    });
    if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) return code;
  }
  return launch_partial_sums(partials, args.width, args.partials, args.dw, args.accumulate, handle);
}

template int launch(const GatedForward<float>&, void*);
template int launch(const GatedForward<Bf16>&, void*);
template int launch(const GatedBackward<float>&, void*);
template int launch(const GatedBackward<Bf16>&, void*);

}  // namespace stowage::kernels::norm
