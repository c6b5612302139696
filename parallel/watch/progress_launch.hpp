#pragma once

#include <cuda_runtime_api.h>

#include "parallel/watch/progress.hpp"

namespace stowage::parallel {

/// Notes, in order on the stream, what becomes of a collective.
cudaError_t launch_progress(const ProgressNote& note, cudaStream_t stream);

}  // namespace stowage::parallel
