// Slots of rows that go to other ranks, by a scan: one block for each pair of ranks.
//
// A block walks the rows of its pair in their order, a row a thread and 1024 at a time. A warp
// votes on which of its rows have an expert of the receiver, and counts those before each; the
// warps' sums are added in order, and a running sum carries them from chunk to chunk. So slots are
// in order of rows, whatever runs first. Cost: R + 1 words a row and rank, from L2 but for the
// first that asks; the time is that of a launch and of two barriers for each 1024 rows. No
// workspace.

#include <cuda_runtime.h>

#include "kernels/moe/slots.hpp"

namespace stowage::kernels::moe {
namespace {

constexpr int kWarps = 32;
constexpr int kThreads = 32 * kWarps;

/// How many threads before this one say yes, and how many do at all. All of a block call it.
struct Count {
  int before, all;
};
__device__ __forceinline__ Count count_yes(bool yes, int (&warp_sums)[kWarps]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const unsigned votes = __ballot_sync(0xffffffffU, yes);
  __syncthreads();  // the sums of the call before are read
  if (lane == 0) warp_sums[warp] = __popc(votes);
  __syncthreads();
  const auto sum = static_cast<unsigned>(warp_sums[lane]);
  const auto earlier = __reduce_add_sync(0xffffffffU, lane < warp ? sum : 0U);
  const auto all = __reduce_add_sync(0xffffffffU, sum);
  return {static_cast<int>(earlier) + __popc(votes & ((1U << lane) - 1)), static_cast<int>(all)};
}

__global__ void __launch_bounds__(kThreads)
    send(std::int64_t n, int topk, int share, int slots, const std::int32_t* __restrict__ indices,
         std::int32_t* __restrict__ row_slot, std::int32_t* __restrict__ wanted) {
  __shared__ int warp_sums[kWarps];
  const int rank = static_cast<int>(blockIdx.x), ranks = static_cast<int>(gridDim.x);
  const int first = rank * share;
  int next = 0;
  for (std::int64_t base = 0; base < n; base += kThreads) {
    const std::int64_t row = base + threadIdx.x;
    bool goes = false;
    for (int r = 0; row < n && r < topk; ++r) {
      const int expert = indices[row * topk + r];
      goes = goes || (expert >= first && expert < first + share);
    }
    const Count count = count_yes(goes, warp_sums);
    const int slot = next + count.before;
    if (row < n) row_slot[row * ranks + rank] = goes && slot < slots ? rank * slots + slot : -1;
    next += count.all;
  }
  if (threadIdx.x == 0) wanted[rank] = next;
}

__global__ void __launch_bounds__(kThreads)
    receive(std::int64_t n, int topk, int slots, const std::int32_t* __restrict__ local,
            const std::int32_t* __restrict__ token_row, std::int32_t* __restrict__ slot_row) {
  __shared__ int warp_sums[kWarps];
  const auto rank = static_cast<std::int64_t>(blockIdx.x);
  std::int32_t* const own = slot_row + rank * slots * topk;
  int next = 0;
  for (std::int64_t base = 0; base < n; base += kThreads) {
    const std::int64_t row = rank * n + base + threadIdx.x;
    const bool there = base + threadIdx.x < n;
    bool comes = false;
    for (int r = 0; there && r < topk; ++r) comes = comes || local[row * topk + r] >= 0;
    const Count count = count_yes(comes, warp_sums);
    const std::int64_t slot = next + count.before;
    for (int r = 0; comes && slot < slots && r < topk; ++r)
      own[slot * topk + r] = token_row[row * topk + r];
    next += count.all;
  }
  const std::int64_t end = std::int64_t{slots} * topk;
  for (std::int64_t i = std::int64_t{next} * topk + threadIdx.x; i < end; i += kThreads)
    own[i] = -1;
}

}  // namespace

}  // namespace stowage::kernels::moe

namespace stowage::kernels {

template <class S>
int SendSlots::launch(const Operands<Pointers<S>>& o, void* stream) const {
  moe::send<<<static_cast<unsigned>(ranks), moe::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      rows, static_cast<int>(topk), static_cast<int>(share), static_cast<int>(slots), o.indices,
      o.row_slot, o.wanted);
  return cudaGetLastError();
}

template <class S>
int ReceiveSlots::launch(const Operands<Pointers<S>>& o, void* stream) const {
  moe::receive<<<static_cast<unsigned>(ranks), moe::kThreads, 0,
                 static_cast<cudaStream_t>(stream)>>>(
      rows, static_cast<int>(topk), static_cast<int>(slots), o.local, o.token_row, o.slot_row);
  return cudaGetLastError();
}

template int SendSlots::launch(const Operands<Pointers<float>>&, void*) const;
template int SendSlots::launch(const Operands<Pointers<execution::Bf16>>&, void*) const;
template int ReceiveSlots::launch(const Operands<Pointers<float>>&, void*) const;
template int ReceiveSlots::launch(const Operands<Pointers<execution::Bf16>>&, void*) const;

}  // namespace stowage::kernels
