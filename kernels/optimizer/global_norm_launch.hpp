#pragma once

#include <cstdint>
#include <span>

/// The launch of global_norm's kernels on device memory, behind the checks of global_norm.cpp.
namespace stowage::kernels::optimizer {

/// `partials` has room for a sum of each block (norm_block.hpp) of each gradient. `stream` is a
/// cudaStream_t, the result a cudaError_t.
int launch_global_norm(std::span<const std::span<const float>> gradients, float* norm,
                       std::int32_t* step_ok, double* partials, void* stream);

}  // namespace stowage::kernels::optimizer
