#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

/// The launches behind mixed_product.cpp; bf16 values as 16-bit words.
namespace stowage::kernels::mixed {

inline constexpr int kParts = 3;  ///< bf16 values that hold the 24 bits of an fp32

/// parts (rows, 3 columns) = the three parts of values (rows, columns), beside each other.
cudaError_t launch_split(std::int64_t rows, std::int64_t columns, const float* values,
                         std::uint16_t* parts, cudaStream_t stream);

/// sum (count), or sum += , = the sum of three arrays of `count` that lie one after another.
cudaError_t launch_join(std::int64_t count, const float* parts, float* sum, bool accumulate,
                        cudaStream_t stream);

}  // namespace stowage::kernels::mixed
