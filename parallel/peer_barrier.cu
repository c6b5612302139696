// A meeting of the ranks of a group: each writes the number of the meeting into the others' memory
// over NVLink and waits until all have written theirs. One warp, a lane for each peer, so that it
// finds room on an SM beside kernels that take all of it.

#include "parallel/peer_barrier.hpp"

namespace stowage::parallel {
namespace {

__device__ void store_release(std::uint64_t* at, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

__device__ std::uint64_t load_acquire(const std::uint64_t* at) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}

__global__ void __launch_bounds__(kMostPeers) peer_barrier(PeerFlags flags) {
  const int peer = static_cast<int>(threadIdx.x);
  const std::uint64_t meeting = *flags.count + 1;
  __syncwarp();
  if (peer == flags.rank) *flags.count = meeting;
  if (peer >= flags.ranks || peer == flags.rank) return;
  __threadfence_system();
  store_release(flags.there[peer] + flags.rank, meeting);
  while (load_acquire(flags.here + peer) < meeting) __nanosleep(64);
}

}  // namespace

cudaError_t launch_peer_barrier(const PeerFlags& flags, cudaStream_t stream) {
  peer_barrier<<<1, kMostPeers, 0, stream>>>(flags);
  return cudaGetLastError();
}

}  // namespace stowage::parallel
