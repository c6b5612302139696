#pragma once

#include "kernels/ssd/ssd_cuda.hpp"

namespace stowage::kernels {

/// Convolution and scan as one operator on the GPU. In all of this, `xbc_stride` and `dxbc_stride`
/// of the shape are those of the rows before the convolution and of their gradient.
///
/// Device pointers of the forward; `scan.xbc` are the rows before the convolution.
struct ConvScanCudaForward {
  SsdCudaForward scan;
  int conv_width = 4;                 ///< W, 2 to 4
  const void* conv_weight = nullptr;  ///< (C, W), C = H P + 2 G N; bf16 or fp32 as a_log
  const void* conv_bias = nullptr;    ///< (C)
  void* convolved = nullptr;          ///< scratch (n, C) bf16, 1024-byte aligned
};

/// Device pointers of the backward; `scan.xbc` and `scan.dxbc` are the rows before the convolution
/// and their gradient.
struct ConvScanCudaBackward {
  SsdCudaBackward scan;
  int conv_width = 4;  ///< W, 2 to 4
  const void* conv_weight = nullptr;
  const void* conv_bias = nullptr;
  float* dconv_weight = nullptr;  ///< (C, W) fp32
  float* dconv_bias = nullptr;    ///< (C) fp32
  void* convolved = nullptr;      ///< scratch (n, C) bf16: xbc, then its gradient in its place
};

/// Whether the tensor-core kernels serve this shape on this machine.
bool conv_scan_cuda_serves(const SsdCudaShape& shape);

/// ssd_cuda_forward of silu(conv1d(xbc)), conditions as there. The convolution is made once, in the
/// kernel that makes the scan's segment states.
void conv_scan_cuda_forward(const SsdCudaShape& shape, const ConvScanCudaForward& args,
                            cudaStream_t stream);

/// The gradients of all inputs. Nothing but the forward's inputs is needed: the convolution is made
/// again. The workspace serves the convolution's sums after the scan's.
void conv_scan_cuda_backward(const SsdCudaShape& shape, const ConvScanCudaBackward& args,
                             cudaStream_t stream);

std::size_t conv_scan_cuda_forward_workspace_bytes(const SsdCudaShape& shape);
std::size_t conv_scan_cuda_backward_workspace_bytes(const SsdCudaShape& shape);

}  // namespace stowage::kernels
