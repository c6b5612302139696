// Progress words where no meeting of ranks notes them (peer_barrier.cu).

#include "execution/overlapping_products.cuh"
#include "parallel/watch/progress.cuh"
#include "parallel/watch/progress_launch.hpp"

namespace stowage::parallel {
namespace {

using namespace execution::overlapping;

__global__ void __maxnreg__(kRegistersOverlapping) note_progress(ProgressNote note) {
  if (note.begins) note_begin(note.words, note.index);
  if (note.ends) note_end(note.words);
}

}  // namespace

cudaError_t launch_progress(const ProgressNote& note, cudaStream_t stream) {
  if (const cudaError_t kept = keep_division_of_products<note_progress>(); kept != cudaSuccess)
    return kept;
  note_progress<<<1, 1, 0, stream>>>(note);
  return cudaGetLastError();
}

}  // namespace stowage::parallel
