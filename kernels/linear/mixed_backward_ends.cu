// What stands before and behind the products of mixed_backward_sm90.cu: dy (n, E) in fp32 to its
// three bf16 parts, and the sum of what the runs of rows give to dw. high = bf16(v), middle =
// bf16(v - high), low = bf16(v - high - middle), as in mixed_product.cu.
// Cost: 10 bytes an element of dy; 4 bytes an element of dw for each run and once or twice more.
// Limits: two launches of about 3 us each on one H200.

#include "kernels/hopper/convert.cuh"
#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/linear/mixed_launch.hpp"

namespace stowage::kernels::mixed {
namespace {

using namespace hopper;

constexpr int kHelperThreads = 256;

/// dy (rows, E) to its parts (rows, C), zero where no expert is. A thread has four experts.
template <int kExperts>
__global__ void __launch_bounds__(kHelperThreads)
    split(std::int64_t rows, int experts, const float* __restrict__ dy, uint2* __restrict__ parts) {
  constexpr int kQuads = kExperts / 4;
  constexpr int kRowQuads = kColumns<kExperts> / 4;
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();  // not before: see Producer
  const std::int64_t i = std::int64_t{blockIdx.x} * kHelperThreads + threadIdx.x;
  const std::int64_t row = i / kQuads;
  const int quad = static_cast<int>(i % kQuads);
  if (row >= rows) return;
  float rest[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int expert = 4 * quad + j;
    rest[j] = expert < experts ? dy[row * experts + expert] : 0.0F;
  }
#pragma unroll
  for (int part = 0; part < kRowQuads / kQuads; ++part) {
    const uint2 packed = part < kParts
                             ? uint2{pack_bf16(rest[0], rest[1]), pack_bf16(rest[2], rest[3])}
                             : uint2{0, 0};
    parts[row * kRowQuads + part * kQuads + quad] = packed;
    rest[0] -= unpack_low(packed.x);
    rest[1] -= unpack_high(packed.x);
    rest[2] -= unpack_low(packed.y);
    rest[3] -= unpack_high(packed.y);
  }
}

/// dw = or += the runs' sums, in order.
__global__ void __launch_bounds__(kHelperThreads)
    sum_runs(std::int64_t quads, int splits, const float4* __restrict__ partial,
             float4* __restrict__ dw, bool accumulate) {
  griddepcontrol_wait();
  const std::int64_t i = std::int64_t{blockIdx.x} * kHelperThreads + threadIdx.x;
  if (i >= quads) return;
  float4 sum = partial[i];
#pragma unroll 4
  for (int s = 1; s < splits; ++s) {
    const float4 value = partial[s * quads + i];
    sum = {sum.x + value.x, sum.y + value.y, sum.z + value.z, sum.w + value.w};
  }
  if (accumulate) {
    const float4 old = dw[i];
    sum = {sum.x + old.x, sum.y + old.y, sum.z + old.z, sum.w + old.w};
  }
  dw[i] = sum;
}

unsigned helper_blocks(std::int64_t count) {
  return static_cast<unsigned>((count + kHelperThreads - 1) / kHelperThreads);
}

}  // namespace

cudaError_t launch_split_panels(const BackwardSizes& sizes, const float* dy, void* parts,
                                cudaStream_t stream) {
  return with_experts(sizes.padded, [&]<int kExperts>() {
    return launch_dependent(split<kExperts>, helper_blocks(sizes.rows * kExperts / 4),
                            kHelperThreads, 0, stream, sizes.rows, sizes.experts, dy,
                            static_cast<uint2*>(parts));
  });
}

cudaError_t launch_sum_runs(const BackwardSizes& sizes, const float* partial, float* dw,
                            bool accumulate, cudaStream_t stream) {
  const std::int64_t quads = std::int64_t{sizes.experts} * sizes.width / 4;
  return launch_dependent(sum_runs, helper_blocks(quads), kHelperThreads, 0, stream, quads,
                          sizes.splits, reinterpret_cast<const float4*>(partial),
                          reinterpret_cast<float4*>(dw), accumulate);
}

}  // namespace stowage::kernels::mixed
