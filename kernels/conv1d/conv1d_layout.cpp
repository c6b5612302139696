#include "kernels/conv1d/conv1d_layout.hpp"

namespace stowage::kernels {

std::size_t conv1d_cuda_backward_workspace_bytes(const Conv1dCudaShape& shape) {
  return static_cast<std::size_t>(conv1d::ranges(shape) * conv1d::kSums * shape.channels) *
         sizeof(float);
}

std::size_t detail::conv1d_cuda_backward_bytes(std::int64_t tokens, std::int64_t channels,
                                               execution::Dtype storage) {
  if (storage == execution::Dtype::fp64) return 0;
  Conv1dCudaShape shape;
  shape.tokens = tokens;
  // the simple kernels' partial sums are the more; which kernels run, only addresses decide
  return static_cast<std::size_t>(conv1d::strips(shape) * conv1d::kSums * channels) * sizeof(float);
}

}  // namespace stowage::kernels
