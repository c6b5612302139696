// Sums over a rank's columns of a group of the gated norm that ranks share; group_shares.hpp.
//
// A team of warps has a row in registers, as in gated_rmsnorm.cu; rows that are not whole packs of
// 16 bytes, or too wide for a team, are a block's, element by element. Bound by memory: y and z are
// read once, and dout for a projection.

#include "kernels/access.cuh"
#include "kernels/norm/norm_launch.hpp"
#include "kernels/norm/norm_team.cuh"
#include "kernels/silu.cuh"

namespace stowage::kernels::norm {
namespace {

using device::kPackSize;
using device::sigmoid;
using execution::Bf16;

constexpr int kPlainThreads = 128;

// The square of v, or its product with dout and w.
__device__ __forceinline__ float term(float y, float z, bool projects, float dout, float w) {
  const float gated = y * z * sigmoid(z);
  return projects ? dout * w * gated : gated * gated;
}

template <class S, int kWarps, int kPacks>
__global__ void __launch_bounds__(Team<kWarps, kPacks>::kThreads)
    sums_kernel(const GatedSums<S> args) {
  using Row = Team<kWarps, kPacks>;
  constexpr int kSize = kPackSize<S>;
  __shared__ typename Row::Slots slots;
  int turn = 0;
  const std::int64_t row = std::int64_t{blockIdx.x} * Row::kTeams + Row::index();
  if (row >= args.rows) return;  // whole teams
  const bool projects = args.dout != nullptr;
  const int count = static_cast<int>(args.width / kSize);
  float sum = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int pack = Row::pack(p);
    if (pack >= count) continue;
    const auto load = [&](const S* from) { return reinterpret_cast<const uint4*>(from)[pack]; };
    float y[kSize], z[kSize], dout[kSize] = {}, w[kSize] = {};
    device::unpack<S>(load(args.y + row * args.width), y);
    device::unpack<S>(load(args.z + row * args.z_stride), z);
    if (projects) {
      device::unpack<S>(load(args.dout + row * args.width), dout);
      device::unpack<S>(load(args.w), w);
    }
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum += term(y[i], z[i], projects, dout[i], w[i]);
  }
  sum = Row::sum(sum, slots, turn);
  if (Row::pack(0) == 0) args.sums[row] = sum;
}

template <class S>
__global__ void __launch_bounds__(kPlainThreads) sums_plain_kernel(const GatedSums<S> args) {
  const std::int64_t row = blockIdx.x;
  const bool projects = args.dout != nullptr;
  float sum = 0;
  for (std::int64_t j = threadIdx.x; j < args.width; j += kPlainThreads) {
    const std::int64_t at = row * args.width + j;
    sum += term(device::to_float(args.y[at]), device::to_float(args.z[row * args.z_stride + j]),
                projects, projects ? device::to_float(args.dout[at]) : 0,
                projects ? device::to_float(args.w[j]) : 0);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) args.sums[row] = sum;
}

}  // namespace

template <class S>
int launch(const GatedSums<S>& args, void* handle) {
  if (args.rows == 0) return cudaSuccess;
  const auto stream = static_cast<cudaStream_t>(handle);
  const bool served =
      device::whole_packs<S>({args.width, args.z_stride}, {args.y, args.z, args.dout, args.w}) &&
      with_team<4>(args.width / kPackSize<S>, [&]<int kWarps, int kPacks>() {
        using Row = Team<kWarps, kPacks>;
        const auto blocks = static_cast<unsigned>((args.rows + Row::kTeams - 1) / Row::kTeams);
        sums_kernel<S, kWarps, kPacks><<<blocks, Row::kThreads, 0, stream>>>(args);
      });
  if (!served)
    sums_plain_kernel<S><<<static_cast<unsigned>(args.rows), kPlainThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

template int launch(const GatedSums<float>&, void*);
template int launch(const GatedSums<Bf16>&, void*);

}  // namespace stowage::kernels::norm
