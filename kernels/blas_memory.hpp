#pragma once

namespace stowage::kernels {

/// Takes OpenBLAS's buffers for products on `threads` threads at once. It keeps them, so that a
/// product allocates nothing later: without room for a buffer it would try again for ever.
/// @throws Error (exit 3) if the process may not have as much address space
void take_blas_memory(int threads);

}  // namespace stowage::kernels
