// Copies of rows between device and host memory, of which only the device knows how many there are.
//
// What is on its way has to fill the link. On an H200's, where copy engines reach 55 GB/s, warps of
// a prototype with 2 KiB each wrote 50 if they were 16 and 52 if they were 64, and read 20, 37 and
// 51 if they were 16, 32 and 64. More stand in the way of compute: the blocks fit beside products,
// as overlapping_products.cuh says, but kernels that need all registers of an SM wait for those on
// it.

#include <cstdint>

#include "execution/cuda/copy_rows.hpp"
#include "execution/overlapping_products.cuh"

namespace stowage::execution::cuda {
namespace {

using namespace overlapping;

constexpr int kBlocksToHost = 24, kBlocksFromHost = 64;
/// Sixteen bytes each that a lane has on their way at once: half of its registers.
constexpr int kAtOnce = 4;

__global__ void __maxnreg__(kRegistersOverlapping)
    copy_rows_kernel(const unsigned char* __restrict__ from, unsigned char* __restrict__ to,
                     CountedRows rows) {
  const std::uint64_t wanted = static_cast<std::uint64_t>(*rows.count) * rows.row_bytes;
  const std::uint64_t bytes = wanted < rows.most ? wanted : rows.most;
  const auto packs = static_cast<std::int64_t>(bytes / sizeof(uint4));
  const int lane = static_cast<int>(threadIdx.x);
  const auto* in = reinterpret_cast<const uint4*>(from);
  auto* out = reinterpret_cast<uint4*>(to);
  constexpr std::int64_t kRound = kAtOnce * kWarp;
  for (std::int64_t at = blockIdx.x * kRound + lane; at < packs; at += gridDim.x * kRound) {
    uint4 some[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (at + i * kWarp < packs) some[i] = __ldcs(in + at + i * kWarp);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (at + i * kWarp < packs) __stcs(out + at + i * kWarp, some[i]);
  }
  if (blockIdx.x > 0) return;
  if (const std::uint64_t rest = packs * sizeof(uint4) + lane; rest < bytes) to[rest] = from[rest];
  if (lane == 0) *rows.moved += bytes;
}

}  // namespace

cudaError_t launch_copy_rows(void* to, const void* from, const CountedRows& rows,
                             cudaStream_t stream) {
  if (const cudaError_t kept = keep_division_of_products<copy_rows_kernel>(); kept != cudaSuccess)
    return kept;
  copy_rows_kernel<<<rows.to_host ? kBlocksToHost : kBlocksFromHost, kWarp, 0, stream>>>(
      static_cast<const unsigned char*>(from), static_cast<unsigned char*>(to), rows);
  return cudaGetLastError();
}

}  // namespace stowage::execution::cuda
