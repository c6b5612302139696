#pragma once

#include <cstdint>
#include <span>

#include "kernels/optimizer/global_norm.hpp"

/// The launches of the norm's kernels on device memory, behind the checks of global_norm.cpp.
/// `stream` is a cudaStream_t, the result a cudaError_t.
namespace stowage::kernels::optimizer {

int launch_norm_partials(std::span<const NormPointers<float>> pieces, double* partials,
                         void* stream);

int launch_norm_finish(std::span<const double> partials, float* norm, std::int32_t* step_ok,
                       void* stream);

}  // namespace stowage::kernels::optimizer
