// Progress words: one thread adds to counts in page-locked host memory. Only this stream writes
// them, so the sum needs no atomic; volatile keeps both ways through the link, and the index is
// written before the count that announces it.

#include "parallel/progress_launch.hpp"

namespace stowage::parallel {
namespace {

__global__ void progress_begin(volatile ProgressWords* words, std::uint64_t index) {
  words->index = index;
  __threadfence_system();
  words->begun = words->begun + 1;
}

__global__ void progress_end(volatile ProgressWords* words) { words->ended = words->ended + 1; }

}  // namespace

cudaError_t launch_progress_begin(ProgressWords* words, std::uint64_t index, cudaStream_t stream) {
  progress_begin<<<1, 1, 0, stream>>>(words, index);
  return cudaGetLastError();
}

cudaError_t launch_progress_end(ProgressWords* words, cudaStream_t stream) {
  progress_end<<<1, 1, 0, stream>>>(words);
  return cudaGetLastError();
}

}  // namespace stowage::parallel
