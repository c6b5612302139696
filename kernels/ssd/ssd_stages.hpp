#pragma once

#include "kernels/ssd/ssd_cuda.hpp"
#include "kernels/ssd/ssd_launch.hpp"

/// The scan without its first launches, for a caller that makes what those make while it makes xbc
/// (kernels/conv_scan). Shapes, operands and errors are those of ssd_cuda.hpp.
namespace stowage::kernels::ssd {

/// Where in the forward's workspace the first launches leave their results.
struct ForwardRoom {
  Sizes sizes;                ///< with the segments that the scan works in, each of one piece
  float* records = nullptr;   ///< as of PrepareParameters
  Span* spans = nullptr;      ///< as of PrepareParameters
  float* partials = nullptr;  ///< as of StatesDirection
  float* through = nullptr;   ///< as of StatesDirection
};
ForwardRoom forward_room(const SsdCudaShape& shape, void* workspace);

/// ssd_cuda_forward from records, spans and states of pieces, `sizes` says of which, that are
/// already in the workspace.
void forward_from_states(const SsdCudaShape& shape, const Sizes& sizes, const SsdCudaForward& args,
                         cudaStream_t stream);

/// The same for the backward.
struct BackwardRoom {
  Sizes sizes;
  float* records = nullptr;
  Span* spans = nullptr;
};
BackwardRoom backward_room(const SsdCudaShape& shape, void* workspace);

/// ssd_cuda_backward from records and spans that are already in the workspace. dxbc may be xbc
/// itself: a tile of it is written by the block that alone reads that tile, after it did.
void backward_from_records(const SsdCudaShape& shape, const SsdCudaBackward& args,
                           cudaStream_t stream);

}  // namespace stowage::kernels::ssd
