#pragma once

#include <cstdint>
#include <initializer_list>

/// The CUDA runtime's stream, declared here so that this header needs no CUDA.
typedef struct CUstream_st* cudaStream_t;

namespace stowage::kernels {

/// Both gradients of a product with an fp32 gradient dy (n, M), M at most 128, and bf16 x (n, K)
/// and w (M, K), in one pass over x and dx on Hopper: see mixed_backward_sm90.cu. dy is split as in
/// mixed_product.hpp; dw takes three parts of it, dx, which is rounded to bf16, the first two.

/// Whether a GPU is at hand that runs it and the shapes fit: K a multiple of 8, each operand
/// aligned to 16 bytes, dw and a chunk of parts within the scratch memory.
bool mixed_backward_fits(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                         std::initializer_list<const void*> operands);

/// dx (n, K) bf16 = dy w, or dx +=; dw (M, K) fp32 = dy^T x, or dw +=. Works in product_scratch(),
/// in chunks of rows and in an order that depends on the sizes alone.
void mixed_backward(std::int64_t rows, std::int64_t outputs, std::int64_t inputs, const float* dy,
                    const void* x, const void* w, void* dx, bool accumulate_dx, float* dw,
                    bool accumulate_dw, cudaStream_t stream);

}  // namespace stowage::kernels
