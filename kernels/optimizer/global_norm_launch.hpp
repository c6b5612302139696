#pragma once

#include <cstdint>
#include <span>

#include "kernels/optimizer/global_norm.hpp"

/// The launches of global_norm's kernels on device memory, behind the checks of global_norm.cpp.
/// `stream` is a cudaStream_t, the result a cudaError_t.
namespace stowage::kernels::optimizer {

int launch_norm_partials(std::span<const NormPointers<float>> pieces, void* stream);

/// `chunks` has room for norm_chunks(blocks) sums.
int launch_norm_finish(const double* partials, std::int64_t blocks, float* norm,
                       std::int32_t* step_ok, double* chunks, void* stream);

}  // namespace stowage::kernels::optimizer
