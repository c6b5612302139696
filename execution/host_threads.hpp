#pragma once

namespace stowage::execution {

/// Most threads that compute: Kokkos' OpenMP space keeps a table of 512 (MAX_THREAD_COUNT of
/// versions 3.4 to 5.0), and writes behind its end with more.
inline constexpr int kMostHostThreads = 512;

/// Threads that OpenMP offers: OMP_NUM_THREADS, or one for each hardware thread of the process.
int offered_host_threads();

/// Threads that loops of the host backend run on: those that OpenMP offers, at most
/// kMostHostThreads.
int host_threads();

/// Starts and ends `threads` - 1 threads beside the calling one, as OpenMP is about to: where it
/// cannot start one, it ends the process with exit code 1.
/// @throws Error (exit 3) if they cannot all be there at once
void require_host_threads(int threads);

}  // namespace stowage::execution
