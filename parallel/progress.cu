// Progress words where no meeting of ranks notes them (peer_barrier.cu).

#include "execution/beside_products.cuh"
#include "parallel/progress.cuh"
#include "parallel/progress_launch.hpp"

namespace stowage::parallel {
namespace {

using namespace execution::beside;

__global__ void __maxnreg__(kRegistersBeside) note_progress(ProgressNote note) {
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
