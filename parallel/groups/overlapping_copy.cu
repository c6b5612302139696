// A copy within a device by blocks that fit beside products (overlapping_products.cuh).

#include <cstdint>

#include "execution/overlapping_products.cuh"
#include "parallel/groups/overlapping_copy.hpp"

namespace stowage::parallel::detail {
namespace {

using namespace execution::overlapping;

/// Sixteen bytes each that a lane has on their way at once: half of its registers.
constexpr int kAtOnce = 4;
constexpr int kRound = kAtOnce * kWarp;

__global__ void __maxnreg__(kRegistersOverlapping)
    copy_kernel(const uint4* __restrict__ from, uint4* __restrict__ to, std::int64_t packs,
                int rounds, int rest) {
  const int lane = static_cast<int>(threadIdx.x);
  std::int64_t at = std::int64_t{blockIdx.x} * rounds * kRound + lane;
  for (int round = 0; round < rounds; ++round, at += kRound) {
    uint4 some[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (at + i * kWarp < packs) some[i] = from[at + i * kWarp];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (at + i * kWarp < packs) to[at + i * kWarp] = some[i];
  }
  if (blockIdx.x == 0 && lane < rest)
    reinterpret_cast<unsigned char*>(to + packs)[lane] =
        reinterpret_cast<const unsigned char*>(from + packs)[lane];
}

bool aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % sizeof(uint4) == 0;
}

}  // namespace

int launch_overlapping_copy(void* stream, void* to, const void* from, std::size_t bytes) {
  const auto on = static_cast<cudaStream_t>(stream);
  if (!aligned(to) || !aligned(from))
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, on);
  if (const cudaError_t kept = keep_division_of_products<copy_kernel>(); kept != cudaSuccess)
    return kept;
  const auto packs = static_cast<std::int64_t>(bytes / sizeof(uint4));
  const auto [blocks, rounds] = rounds_of(packs, kRound);
  copy_kernel<<<blocks, kWarp, 0, on>>>(static_cast<const uint4*>(from), static_cast<uint4*>(to),
                                        packs, rounds, static_cast<int>(bytes % sizeof(uint4)));
  return cudaGetLastError();
}

}  // namespace stowage::parallel::detail
