#pragma once

#include <cuda_runtime_api.h>

#include "execution/queue.hpp"

namespace stowage::execution::cuda {

/// Queue::copy_rows: a kernel, since copy engines know no counts. Both places are in device memory
/// or in page-locked memory of the host, at multiples of 16 bytes.
cudaError_t launch_copy_rows(void* to, const void* from, const CountedRows& rows,
                             cudaStream_t stream);

}  // namespace stowage::execution::cuda
