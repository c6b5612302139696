#include "kernels/conv1d/conv1d_cuda_dispatch.hpp"

#include <algorithm>

#include "kernels/conv1d/conv1d_launch.hpp"
#include "kernels/operands.hpp"

namespace stowage::kernels::detail {

using execution::Bf16;

namespace {

template <class S>
Conv1dCudaShape cuda_shape(const Matrix<const S>& x, std::int64_t dx_stride, int width) {
  Conv1dCudaShape shape;
  shape.tokens = x.rows;
  shape.channels = static_cast<int>(x.columns);
  shape.width = width;
  shape.x_stride = x.stride;
  shape.y_stride = x.columns;
  shape.dx_stride = dx_stride;
  shape.bf16_parameters = Operands("conv1d").is_bf16(execution::kDtypeOf<S>);
  return shape;
}

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

bool by_vectors(const Conv1dCudaShape& shape, std::initializer_list<const void*> matrices) {
  return shape.bf16_parameters && shape.tokens > 0 && shape.channels % 8 == 0 &&
         shape.x_stride % 8 == 0 && shape.dx_stride % 8 == 0 &&
         std::ranges::all_of(matrices, aligned);
}

}  // namespace

template <class S>
int conv1d_forward_cuda(Matrix<const S> x, const S* w, const S* b, const std::int32_t* seq_idx,
                        S* y, const S* halo, int width, void* stream) {
  const Conv1dCudaShape shape = cuda_shape(x, 0, width);
  Conv1dCudaForward args;
  args.x = x.data;
  args.w = w;
  args.b = b;
  args.seq_idx = seq_idx;
  args.y = y;
  args.halo = halo;
  const auto on = static_cast<cudaStream_t>(stream);
  if (!by_vectors(shape, {args.x, args.y, args.halo}))
    return conv1d::launch_simple_forward(shape, args, on);
  return conv1d::launch_forward(shape, args, on);
}

template <class S>
int conv1d_backward_cuda(const Conv1dBackward<S>& from, void* stream) {
  const Conv1dCudaShape shape = cuda_shape(from.x, from.dx.stride, from.width);
  Conv1dCudaBackward args;
  args.dy = from.dy;
  args.x = from.x.data;
  args.w = from.w;
  args.b = from.b;
  args.seq_idx = from.seq_idx;
  args.dx = from.dx.data;
  args.halo = from.halo;
  args.dhalo = from.dhalo;
  args.dw = from.dw;
  args.db = from.db;
  args.workspace = from.workspace;
  args.accumulate = from.accumulate;
  const auto on = static_cast<cudaStream_t>(stream);
  if (!by_vectors(shape, {args.x, args.dy, args.dx, args.halo, args.dhalo}))
    return conv1d::launch_simple_backward(shape, args, on);
  return conv1d::launch_backward(shape, args, on);
}

#define STOWAGE_INSTANTIATE(S)                                                                   \
  template int conv1d_forward_cuda(Matrix<const S>, const S*, const S*, const std::int32_t*, S*, \
                                   const S*, int, void*);                                        \
  template int conv1d_backward_cuda(const Conv1dBackward<S>&, void*);
STOWAGE_INSTANTIATE(float)
STOWAGE_INSTANTIATE(Bf16)
#undef STOWAGE_INSTANTIATE

}  // namespace stowage::kernels::detail
