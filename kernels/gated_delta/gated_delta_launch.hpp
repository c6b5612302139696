#pragma once

#include "kernels/gated_delta/gated_delta_arrays.hpp"

/// The launches of the chunked form, for S in float and Bf16. Each returns a cudaError_t.
namespace stowage::kernels::gated_delta {

/// Y, and the state behind the last token.
template <class S>
int launch_forward(const Arrays<S, float>& arrays, void* stream);
/// All gradients. `arrays.y` is null: the states are made again without it.
template <class S>
int launch_backward(const Arrays<S, float>& arrays, void* stream);
/// What a segment leaves: its matrices, and final_state or, with dy, dinitial_state.
template <class S>
int launch_segment(const Arrays<S, float>& arrays, void* stream);
/// The last step of a backward: sums over chunks, of arrays.partials.
template <class S>
int launch_finish(const Arrays<S, float>& arrays, void* stream);

}  // namespace stowage::kernels::gated_delta
