#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "parallel/watch/progress.hpp"

namespace stowage::parallel {

/// Most ranks of a group whose memory is mapped: one warp meets them all.
inline constexpr int kMostPeers = 32;

/// What a rank needs to meet the others of its group in device memory. Passed by value to a launch.
struct PeerFlags {
  /// By rank: where this rank writes the number of its last meeting, in that rank's memory.
  std::uint64_t* there[kMostPeers] = {};
  std::uint64_t* here = nullptr;   ///< by rank: what that rank has written
  std::uint64_t* count = nullptr;  ///< meetings so far
  int rank = 0, ranks = 1;
};

/// Goes on when all ranks have come: what they enqueued before is done. Counts on the device, so it
/// may be captured and replayed.
/// @param note of a collective that begins before the ranks meet, or has ended then; no words: none
cudaError_t launch_peer_barrier(const PeerFlags& flags, const ProgressNote& note,
                                cudaStream_t stream);

}  // namespace stowage::parallel
