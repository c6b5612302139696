#include "kernels/conv1d/conv1d_cuda.hpp"

#include "execution/error.hpp"
#include "kernels/conv1d/conv1d_launch.hpp"

namespace stowage::kernels {
namespace {

void check_shape(const Conv1dCudaShape& shape) {
  STOWAGE_ASSERT(shape.tokens > 0 && shape.tokens < (1LL << 30), "conv1d: {} tokens", shape.tokens);
  STOWAGE_ASSERT(shape.channels > 0 && shape.channels % 8 == 0,
                 "conv1d: {} channels are not a multiple of 8", shape.channels);
  STOWAGE_ASSERT(shape.width >= 2 && shape.width <= 4, "conv1d: width {}", shape.width);
  STOWAGE_ASSERT(shape.x_stride % 8 == 0 && shape.y_stride % 8 == 0 && shape.dx_stride % 8 == 0,
                 "conv1d: row strides {}, {}, {} are not multiples of 8", shape.x_stride,
                 shape.y_stride, shape.dx_stride);
}

void check_launch(cudaError_t status) {
  STOWAGE_ASSERT(status == cudaSuccess, "conv1d: launch failed: {}", cudaGetErrorString(status));
}

}  // namespace

void conv1d_cuda_forward(const Conv1dCudaShape& shape, const Conv1dCudaForward& args,
                         cudaStream_t stream) {
  check_shape(shape);
  check_launch(conv1d::launch_forward(shape, args, stream));
}

void conv1d_cuda_backward(const Conv1dCudaShape& shape, const Conv1dCudaBackward& args,
                          cudaStream_t stream) {
  check_shape(shape);
  check_launch(conv1d::launch_backward(shape, args, stream));
}

}  // namespace stowage::kernels
