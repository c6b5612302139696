#pragma once

#include <cuda_runtime_api.h>

#include "kernels/conv1d/conv1d_cuda.hpp"
#include "kernels/conv1d/conv1d_layout.hpp"

/// The launches of the convolution's kernels, behind the checks of conv1d_cuda.cpp.
namespace stowage::kernels::conv1d {

cudaError_t launch_forward(const Conv1dCudaShape& shape, const Conv1dCudaForward& args,
                           cudaStream_t stream);
cudaError_t launch_backward(const Conv1dCudaShape& shape, const Conv1dCudaBackward& args,
                            cudaStream_t stream);

/// The simple kernels (conv1d_simple.cu): any shape and stride, all operands bf16 or, unless
/// shape.bf16_parameters, all fp32. Each strip has one partial sum a channel.
cudaError_t launch_simple_forward(const Conv1dCudaShape& shape, const Conv1dCudaForward& args,
                                  cudaStream_t stream);
cudaError_t launch_simple_backward(const Conv1dCudaShape& shape, const Conv1dCudaBackward& args,
                                   cudaStream_t stream);

/// dw, db = the partial sums (blocks, kSums, C) of the workspace, in order.
cudaError_t launch_finish(const Conv1dCudaShape& shape, const Conv1dCudaBackward& args,
                          std::int64_t blocks, cudaStream_t stream);

}  // namespace stowage::kernels::conv1d
