#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "execution/op.hpp"
#include "kernels/matrix.hpp"

namespace stowage::kernels {

/// norm (1) = sqrt(sum of squares of all elements of all gradients), in a fixed order.
///
/// gradients: any shapes, all fp32 or all fp64; norm has their dtype. step_ok (1) int32 is set to 0
/// when the norm is not finite (one NaN or infinity in any gradient makes it so), else left as it
/// is: it starts as 1 at the beginning of a step.
void global_norm(execution::Queue& queue, std::span<const execution::View> gradients,
                 const execution::View& norm, const execution::View& step_ok,
                 const execution::View& workspace);

/// Room for one partial sum (fp64) of each block of `elements` gradients in `tensors` tensors.
std::size_t global_norm_workspace_bytes(std::int64_t elements, std::int64_t tensors);

execution::Cost global_norm_cost(std::int64_t elements, execution::Dtype dtype);

/// Host reference; T is float or double. Squares are summed in fp64, which cannot overflow for
/// finite fp32 gradients.
template <class T>
void global_norm_ref(std::span<const std::span<const T>> gradients, T* norm, std::int32_t* step_ok,
                     double* workspace);

}  // namespace stowage::kernels
