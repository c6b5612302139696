// The gated norm of heads, formulas in gated_head_norm.hpp. Bound by memory. A warp has one head of
// one token at a time. The backward's blocks walk through the heads with a fixed stride and keep
// sums of dw in shared memory, a row for each warp; these are added in the order of warps, and the
// blocks' sums in the order of blocks, so the order depends on shapes alone.
// Limits: elements are read one by one; next: packs of 16 bytes, as head_rmsnorm.cu.

#include "execution/dtype.hpp"
#include "kernels/access.cuh"
#include "kernels/gated_delta/gated_head_norm_launch.hpp"
#include "kernels/hopper/warp.cuh"
#include "kernels/norm/norm_launch.hpp"
#include "kernels/silu.cuh"

namespace stowage::kernels::gated_delta {
namespace {

using device::round_to;
using device::to_float;
using execution::Bf16;

constexpr int kWarps = 8, kLanes = 32;

template <class S>
__device__ float rstd_of(const S* y, int width, int lane, float eps) {
  float squares = 0;
  for (int j = lane; j < width; j += kLanes) {
    const float value = to_float(y[j]);
    squares = fmaf(value, value, squares);
  }
  return rsqrtf(hopper::lanes_sum<kLanes>(squares) / static_cast<float>(width) + eps);
}

template <class S>
__global__ void __launch_bounds__(kWarps* kLanes) forward_kernel(const HeadNorm<S> args) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes, width = args.head_dim;
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (row >= args.tokens * args.heads) return;
  const S* y = args.y + row * width;
  const S* z = args.z + row / args.heads * args.z_stride + row % args.heads * width;
  const float rstd = rstd_of(y, width, lane, args.eps);
  for (int j = lane; j < width; j += kLanes) {
    const float gate = to_float(z[j]);
    args.out[row * width + j] =
        round_to<S>(to_float(y[j]) * rstd * to_float(args.w[j]) * gate * device::sigmoid(gate));
  }
}

template <class S>
__global__ void __launch_bounds__(kWarps* kLanes) backward_kernel(const HeadNorm<S> args) {
  extern __shared__ float sums[];  // (kWarps, P)
  const int lane = static_cast<int>(threadIdx.x) % kLanes, width = args.head_dim;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  float* const own = sums + warp * width;
  for (int j = lane; j < width; j += kLanes) own[j] = 0;
  const std::int64_t rows = args.tokens * args.heads;
  for (std::int64_t row = std::int64_t{blockIdx.x} * kWarps + warp; row < rows;
       row += std::int64_t{gridDim.x} * kWarps) {
    const S* y = args.y + row * width;
    const S* dout = args.dout + row * width;
    const std::int64_t column = row % args.heads * width;
    const S* z = args.z + row / args.heads * args.z_stride + column;
    S* dz = args.dz + row / args.heads * args.dz_stride + column;
    const float rstd = rstd_of(y, width, lane, args.eps);
    float along = 0;
    for (int j = lane; j < width; j += kLanes) {
      const float zj = to_float(z[j]), sigmoid = device::sigmoid(zj), w = to_float(args.w[j]);
      const float h = to_float(y[j]) * rstd, gradient = to_float(dout[j]);
      const float dv = gradient * zj * sigmoid;
      along += dv * w * h;
      own[j] += dv * h;
      dz[j] = round_to<S>(gradient * h * w * device::silu_derivative(zj, sigmoid));
    }
    const float mean = hopper::lanes_sum<kLanes>(along) / static_cast<float>(width);
    for (int j = lane; j < width; j += kLanes) {
      const float zj = to_float(z[j]), h = to_float(y[j]) * rstd;
      const float g = to_float(dout[j]) * zj * device::sigmoid(zj) * to_float(args.w[j]);
      args.dy[row * width + j] = round_to<S>(rstd * (g - h * mean));
    }
  }
  __syncthreads();
  for (int j = static_cast<int>(threadIdx.x); j < width; j += kWarps * kLanes) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += sums[w * width + j];
    args.partials[std::int64_t{blockIdx.x} * width + j] = sum;
  }
}

}  // namespace

template <class S>
int launch_head_norm(const HeadNorm<S>& args, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const std::int64_t rows = args.tokens * args.heads;
  if (args.out != nullptr) {
    if (rows == 0) return cudaSuccess;
    forward_kernel<S>
        <<<static_cast<unsigned>((rows + kWarps - 1) / kWarps), kWarps * kLanes, 0, on>>>(args);
    return cudaGetLastError();
  }
  if (rows > 0) {
    const auto bytes = static_cast<int>(kWarps * args.head_dim * std::int64_t{sizeof(float)});
    if (const cudaError_t error = cudaFuncSetAttribute(
            backward_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        error != cudaSuccess)
      return error;
    backward_kernel<S><<<static_cast<unsigned>(norm::kPartials), kWarps * kLanes,
                         static_cast<std::size_t>(bytes), on>>>(args);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return norm::launch_partial_sums(rows > 0 ? norm::kPartials : 0, args.head_dim, args.partials,
                                   args.dw, args.accumulate, stream);
}

template int launch_head_norm(const HeadNorm<float>&, void*);
template int launch_head_norm(const HeadNorm<Bf16>&, void*);

}  // namespace stowage::kernels::gated_delta
