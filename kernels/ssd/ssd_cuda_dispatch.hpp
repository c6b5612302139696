#pragma once

#include "kernels/ssd/ssd.hpp"
#include "kernels/ssd/ssd_layout.hpp"

/// The scan's device forms behind its queue form: the tensor-core kernels (ssd_cuda.hpp) for bf16,
/// head_dim a multiple of 64 and state 64 or 128; the simple ones (ssd_simple.hpp) for all else.
namespace stowage::kernels::detail {

/// Asynchronous on `stream`, a cudaStream_t; capturable. S is float or Bf16, pointers are of device
/// memory. Returns the cudaError_t of the launches.
/// @throws Error where no kernel serves the shape: for the tensor cores X, B and C must be
/// neighbouring columns of one tensor, for the others a (N, P) tile must fit in shared memory
template <class S>
int ssd_forward_cuda(const SsdShape& shape, const SsdInputs<S>& inputs, S* y, void* workspace,
                     const SsdFinal<S>& final, void* stream);
template <class S>
int ssd_backward_cuda(const SsdShape& shape, const SsdInputs<S>& inputs, const S* dy,
                      const SsdGradients<S>& gradients, void* workspace, bool accumulate,
                      void* stream);
/// ssd_segment_adjoint for dy, ssd_segment_state if it is nullptr: one kernel for all shapes.
template <class S>
int ssd_segment_cuda(const SsdShape& shape, const SsdInputs<S>& inputs, const S* dy, float* to,
                     void* stream);

}  // namespace stowage::kernels::detail
