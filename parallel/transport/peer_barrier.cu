// A meeting of the ranks of a group: each writes the number of the meeting into the others' memory
// over NVLink and waits until all have written theirs. One warp, a lane for each peer, so that it
// finds room on an SM beside products; it notes progress too, since each launch has to find room.

#include "execution/overlapping_products.cuh"
#include "parallel/transport/peer_barrier.hpp"
#include "parallel/watch/progress.cuh"

namespace stowage::parallel {
namespace {

using namespace execution::overlapping;

__device__ void store_release(std::uint64_t* at, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

__device__ std::uint64_t load_acquire(const std::uint64_t* at) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}

__global__ void __maxnreg__(kRegistersOverlapping)
    peer_barrier(PeerFlags flags, ProgressNote note) {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer == 0 && note.begins) note_begin(note.words, note.index);
  const std::uint64_t meeting = *flags.count + 1;
  __syncwarp();
  if (peer == flags.rank) *flags.count = meeting;
  if (peer < flags.ranks && peer != flags.rank) {
    __threadfence_system();
    store_release(flags.there[peer] + flags.rank, meeting);
    while (load_acquire(flags.here + peer) < meeting) __nanosleep(64);
  }
  __syncwarp();
  if (peer == 0 && note.ends) note_end(note.words);
}

}  // namespace

cudaError_t launch_peer_barrier(const PeerFlags& flags, const ProgressNote& note,
                                cudaStream_t stream) {
  static_assert(kMostPeers == kWarp);
  if (const cudaError_t kept = keep_division_of_products<peer_barrier>(); kept != cudaSuccess)
    return kept;
  peer_barrier<<<1, kMostPeers, 0, stream>>>(flags, note);
  return cudaGetLastError();
}

}  // namespace stowage::parallel
