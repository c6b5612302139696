#pragma once

#include <cuda_runtime_api.h>

#include "parallel/progress.hpp"

namespace stowage::parallel {

/// Notes, in order on the stream, that collective `index` begins; that it has ended.
cudaError_t launch_progress_begin(ProgressWords* words, std::uint64_t index, cudaStream_t stream);
cudaError_t launch_progress_end(ProgressWords* words, cudaStream_t stream);

}  // namespace stowage::parallel
