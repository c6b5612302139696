// Rows of a table by token: a gather, bound by memory. A warp copies a slice of a row, all of its
// lanes' accesses in flight.

#include "kernels/access.cuh"
#include "kernels/embedding/embedding_launch.hpp"
#include "kernels/embedding/embedding_slice.cuh"

namespace stowage::kernels::embedding {
namespace {

using device::Access;
using execution::Bf16;

constexpr int kPacks = 4;  // accesses of a lane to a row, all in flight

template <class S, bool kPacked>
__global__ void __launch_bounds__(kThreads) forward_kernel(const Forward<S> args, int slices) {
  using Data = Access<S, kPacked>;
  using Part = Slice<Data, kPacks>;
  const std::int64_t warp = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  const std::int64_t t = warp / slices;
  const int slice = static_cast<int>(warp % slices);
  if (t >= args.tokens) return;
  const std::int32_t token = args.token[t];
  const S* from = args.table + max(token, 0) * args.width;
  S* to = args.x + t * args.width;
  typename Data::Bits bits[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (Part::column(slice, p) < args.width)
      bits[p] = token < 0 ? typename Data::Bits{} : Data::load(from + Part::column(slice, p));
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (Part::column(slice, p) < args.width) Data::store(to + Part::column(slice, p), bits[p]);
}

}  // namespace

template <class S>
int launch(const Forward<S>& args, void* handle) {
  if (args.tokens == 0 || args.width == 0) return cudaSuccess;
  const bool packed = device::whole_packs<S>({args.width}, {args.table, args.x});
  const int slices = packed ? Slice<Access<S, true>, kPacks>::count_in(args.width)
                            : Slice<Access<S, false>, kPacks>::count_in(args.width);
  const auto blocks = static_cast<unsigned>((args.tokens * slices + kWarps - 1) / kWarps);
  const auto kernel = packed ? forward_kernel<S, true> : forward_kernel<S, false>;
  kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(handle)>>>(args, slices);
  return cudaGetLastError();
}

template int launch(const Forward<float>&, void*);
template int launch(const Forward<Bf16>&, void*);

}  // namespace stowage::kernels::embedding
