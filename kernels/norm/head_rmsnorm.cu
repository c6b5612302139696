// RMSNorm of the query and key heads of (n, (H + 2K) P); formulas in head_rmsnorm.hpp.
//
// Bound by memory. A warp has one head of one token at a time, packs of 16 bytes side by side. The
// backward's blocks walk through the heads with a fixed stride and keep sums of the weights'
// gradients in shared memory, one row for each warp; these are added in the order of warps, and
// the blocks' sums in the order of blocks (partial_sums.cu), so the order depends on shapes alone.

#include "kernels/access.cuh"
#include "kernels/hopper/warp.cuh"
#include "kernels/norm/norm_launch.hpp"

namespace stowage::kernels::norm {
namespace {

using device::Access;
using execution::Bf16;

constexpr int kWarps = 8;
constexpr int kLanes = 32;

template <class Data, class S>
__device__ float rstd_of(const S* x, int dim, int lane, float eps) {
  float squares = 0;
  for (int i = lane * Data::kSize; i < dim; i += kLanes * Data::kSize) {
    float values[Data::kSize];
    Data::unpack(Data::load(x + i), values);
#pragma unroll
    for (int k = 0; k < Data::kSize; ++k) squares += values[k] * values[k];
  }
  return rsqrtf(hopper::lanes_sum<kLanes>(squares) / static_cast<float>(dim) + eps);
}

template <class S, bool kPacked>
__global__ void __launch_bounds__(kWarps* kLanes) forward_kernel(const HeadForward<S> args) {
  using Data = Access<S, kPacked>;
  const int dim = static_cast<int>(args.sizes.head_dim);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (row >= args.tokens * args.sizes.all()) return;
  const std::int64_t head = row % args.sizes.all();
  const S* x = args.in + row * dim;
  S* y = args.out + row * dim;
  const bool normed = head < args.sizes.heads + args.sizes.kv_heads;
  if (!normed && x == y) return;
  const S* w = head < args.sizes.heads ? args.q_weight : args.k_weight;
  const float rstd = normed ? rstd_of<Data>(x, dim, lane, args.eps) : 0;
  for (int i = lane * Data::kSize; i < dim; i += kLanes * Data::kSize) {
    const auto bits = Data::load(x + i);
    if (!normed) {
      Data::store(y + i, bits);
      continue;
    }
    float values[Data::kSize], weights[Data::kSize];
    Data::unpack(bits, values);
    Data::unpack(Data::load(w + i), weights);
#pragma unroll
    for (int k = 0; k < Data::kSize; ++k)
      values[k] = values[k] * rstd * (weights[k] + args.weight_offset);
    Data::store(y + i, values);
  }
}

// One head's gradient; its share of dw is added to `sums`.
template <class Data, class S>
__device__ void backward_head(const HeadBackward<S>& args, std::int64_t at, const S* w, float* sums,
                              int lane) {
  const int dim = static_cast<int>(args.sizes.head_dim);
  const S* x = args.in + at;
  const S* dy = args.dout + at;
  const float rstd = rstd_of<Data>(x, dim, lane, args.eps);
  float projection = 0;
  for (int i = lane * Data::kSize; i < dim; i += kLanes * Data::kSize) {
    float values[Data::kSize], gradients[Data::kSize], weights[Data::kSize];
    Data::unpack(Data::load(x + i), values);
    Data::unpack(Data::load(dy + i), gradients);
    Data::unpack(Data::load(w + i), weights);
#pragma unroll
    for (int k = 0; k < Data::kSize; ++k)
      projection += gradients[k] * (weights[k] + args.weight_offset) * values[k];
  }
  const float mean = hopper::lanes_sum<kLanes>(projection) * rstd / static_cast<float>(dim);
  for (int i = lane * Data::kSize; i < dim; i += kLanes * Data::kSize) {
    float values[Data::kSize], gradients[Data::kSize], weights[Data::kSize];
    Data::unpack(Data::load(x + i), values);
    Data::unpack(Data::load(dy + i), gradients);
    Data::unpack(Data::load(w + i), weights);
#pragma unroll
    for (int k = 0; k < Data::kSize; ++k) {
      const float h = values[k] * rstd;
      sums[i + k] += gradients[k] * h;
      values[k] = rstd * (gradients[k] * (weights[k] + args.weight_offset) - h * mean);
    }
    Data::store(args.din + at + i, values);
  }
}

template <class S, bool kPacked>
__global__ void __launch_bounds__(kWarps* kLanes) backward_kernel(const HeadBackward<S> args) {
  using Data = Access<S, kPacked>;
  extern __shared__ float sums[];  // (kWarps, 2 P): of the warps, for queries and for keys
  const int dim = static_cast<int>(args.sizes.head_dim);
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int i = static_cast<int>(threadIdx.x); i < kWarps * 2 * dim; i += kWarps * kLanes)
    sums[i] = 0;
  __syncthreads();
  const std::int64_t rows = args.tokens * args.sizes.all();
  for (std::int64_t row = std::int64_t{blockIdx.x} * kWarps + warp; row < rows;
       row += std::int64_t{gridDim.x} * kWarps) {
    const std::int64_t head = row % args.sizes.all(), at = row * dim;
    const bool query = head < args.sizes.heads;
    if (head < args.sizes.heads + args.sizes.kv_heads) {
      backward_head<Data>(args, at, query ? args.q_weight : args.k_weight,
                          sums + (2 * warp + (query ? 0 : 1)) * dim, lane);
    } else if (args.din != args.dout) {
      for (int i = lane * Data::kSize; i < dim; i += kLanes * Data::kSize)
        Data::store(args.din + at + i, Data::load(args.dout + at + i));
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < 2 * dim; i += kWarps * kLanes) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += sums[2 * w * dim + i];
    const int which = i / dim;  // queries, keys
    args.partials[(std::int64_t{which} * gridDim.x + blockIdx.x) * dim + i % dim] = sum;
  }
}

template <class S, class Args>
bool is_packed(const Args& args, std::initializer_list<const void*> rows) {
  return device::whole_packs<S>({args.sizes.head_dim}, rows) &&
         device::whole_packs<S>({}, {args.q_weight, args.k_weight});
}

}  // namespace

template <class S>
int launch(const HeadForward<S>& args, void* stream) {
  const std::int64_t rows = args.tokens * args.sizes.all();
  if (rows == 0) return cudaSuccess;
  const auto kernel =
      is_packed<S>(args, {args.in, args.out}) ? forward_kernel<S, true> : forward_kernel<S, false>;
  kernel<<<static_cast<unsigned>((rows + kWarps - 1) / kWarps), kWarps * kLanes, 0,
           static_cast<cudaStream_t>(stream)>>>(args);
  return cudaGetLastError();
}

template <class S>
int launch(const HeadBackward<S>& args, void* stream) {
  const std::int64_t dim = args.sizes.head_dim;
  if (args.tokens > 0) {
    const auto kernel = is_packed<S>(args, {args.in, args.dout, args.din})
                            ? backward_kernel<S, true>
                            : backward_kernel<S, false>;
    const auto bytes = static_cast<int>(kWarps * 2 * dim * std::int64_t{sizeof(float)});
    if (const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        error != cudaSuccess)
      return error;
    kernel<<<kPartials, kWarps * kLanes, static_cast<std::size_t>(bytes),
             static_cast<cudaStream_t>(stream)>>>(args);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  const std::int64_t count = args.tokens > 0 ? kPartials : 0;
  if (const int error =
          launch_partial_sums(count, dim, args.partials, args.dq_weight, args.accumulate, stream);
      error != cudaSuccess)
    return error;
  return launch_partial_sums(count, dim, args.partials + count * dim, args.dk_weight,
                             args.accumulate, stream);
}

template int launch(const HeadForward<float>&, void*);
template int launch(const HeadForward<Bf16>&, void*);
template int launch(const HeadBackward<float>&, void*);
template int launch(const HeadBackward<Bf16>&, void*);

}  // namespace stowage::kernels::norm
