#pragma once

#include <cstdint>

/// The CUDA runtime's stream, declared here so that this header needs no CUDA.
typedef struct CUstream_st* cudaStream_t;

namespace stowage::kernels {

/// Products of an fp32 gradient with bf16 factors, which no library multiplies: those of a router.
///
/// The gradient is written as a sum of three bf16 values, 24 bits together, so nothing of it is
/// lost: dy = high + middle + low. The three lie beside each other in a matrix (n, 3 M), and the
/// products with it sum all parts in fp32. Works through chunks of rows in product_scratch(), in
/// an order that depends on the sizes alone.

/// dx (n, K) bf16 = dy (n, M) fp32 w (M, K) bf16, or dx +=.
/// @throws Error if three copies of w do not fit into half of the scratch memory
void mixed_backward_input(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                          const float* dy, const void* w, void* dx, bool accumulate,
                          cudaStream_t stream);

/// dw (M, K) fp32 = dy (n, M)^T fp32 x (n, K) bf16, or dw +=.
/// Three dw lie in the scratch memory; those that do not fit in half of it are added up in place.
void mixed_backward_weight(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                           const float* dy, const void* x, float* dw, bool accumulate,
                           cudaStream_t stream);

}  // namespace stowage::kernels
