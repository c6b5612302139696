// Rows of tokens to rows of experts and back, carried whole by the copy engine (see rows.cu).
//
//   gather:  a warp has a token: its row passes through shared memory, from where each slot's lane
//            stores it.     combine: a block has a token: its R rows arrive in shared memory at
//            once, and threads add them in slot order, 16 bytes each.
//
// A row is one piece of contiguous bytes in memory either way, which a warp that has 512 bytes of
// it does not give: with rows of 4 to 5 KiB prototypes were 1 to 6 % faster so on one H200.
// Cost: (R + 1) rows a token. Limit: R scattered streams, 91 to 99 % of a copy of as many bytes
// (one H200, 8e976b2, gather_rows and combine_rows).

#include <algorithm>

#include "kernels/hopper/cp_async_bulk.cuh"
#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/fence.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/hopper/mbarrier.cuh"
#include "kernels/moe/rows_bulk.hpp"
#include "kernels/pack.cuh"

namespace stowage::kernels::moe {
namespace {

using namespace hopper;

constexpr int kGatherWarps = 4;
constexpr int kCombineThreads = 128;

__global__ void __launch_bounds__(32 * kGatherWarps)
    gather(std::int64_t tokens, int topk, int bytes, const unsigned char* x,
           const std::int32_t* token_row, unsigned char* xs) {
  extern __shared__ __align__(128) unsigned char rows[];
  __shared__ Mbarrier arrived[kGatherWarps];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t t = std::int64_t{blockIdx.x} * kGatherWarps + warp;
  if (lane == 0) {
    mbarrier_init(&arrived[warp], 1);
    mbarrier_init_fence();
  }
  __syncthreads();
  griddepcontrol_wait();
  if (t >= tokens) return;
  unsigned char* row = rows + warp * bytes;
  if (lane == 0) {
    mbarrier_arrive_expect_tx(&arrived[warp], static_cast<std::uint32_t>(bytes));
    bulk_load(row, x + t * bytes, static_cast<std::uint32_t>(bytes), &arrived[warp],
              CachePolicy::evict_first);
  }
  const int to = lane < topk ? token_row[t * topk + lane] : -1;
  __syncwarp();
  mbarrier_wait(&arrived[warp], 0);
  if (to < 0) return;
  bulk_store(xs + std::int64_t{to} * bytes, row, static_cast<std::uint32_t>(bytes));
  bulk_commit_group();
  bulk_wait_group_read<0>();
}

template <class S>
__global__ void __launch_bounds__(kCombineThreads)
    combine(int topk, int bytes, const unsigned char* ys, const std::int32_t* token_row,
            unsigned char* out, bool accumulate) {
  extern __shared__ __align__(128) unsigned char rows[];
  __shared__ Mbarrier arrived;
  __shared__ int routed;
  const std::int64_t t = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    mbarrier_init(&arrived, 1);
    mbarrier_init_fence();
  }
  __syncthreads();
  griddepcontrol_wait();
  if (thread < 32) {
    const int from = thread < topk ? token_row[t * topk + thread] : -1;
    const unsigned have = __ballot_sync(0xffffffffU, from >= 0);
    if (thread == 0) {
      routed = __popc(have);
      mbarrier_arrive_expect_tx(&arrived, static_cast<std::uint32_t>(__popc(have) * bytes));
    }
    __syncwarp();
    if (from >= 0)
      bulk_load(rows + __popc(have & ((1U << thread) - 1)) * bytes, ys + std::int64_t{from} * bytes,
                static_cast<std::uint32_t>(bytes), &arrived);
  }
  __syncthreads();
  const int count = routed;
  mbarrier_wait(&arrived, 0);
  for (int at = 16 * thread; at < bytes; at += 16 * kCombineThreads) {
    float sum[device::kPackSize<S>] = {}, values[device::kPackSize<S>];
    const auto add = [&](const unsigned char* from) {
      device::unpack<S>(*reinterpret_cast<const uint4*>(from), values);
#pragma unroll
      for (int i = 0; i < device::kPackSize<S>; ++i) sum[i] += values[i];
    };
    for (int r = 0; r < count; ++r) add(rows + r * bytes + at);
    unsigned char* to = out + t * bytes + at;
    if (accumulate) add(to);
    *reinterpret_cast<uint4*>(to) = device::pack<S>(sum);
  }
}

/// A block's rows leave room for so many blocks of a multiprocessor that their loads overlap.
constexpr std::int64_t kMostBytes = 56 * 1024;

template <class... Arguments>
cudaError_t launch(void (*kernel)(Arguments...), unsigned blocks, unsigned threads,
                   std::int64_t shared_bytes, void* stream, const Arguments&... arguments) {
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  if (status != cudaSuccess) return status;
  return launch_dependent(kernel, blocks, threads, static_cast<std::size_t>(shared_bytes),
                          static_cast<cudaStream_t>(stream), arguments...);
}

}  // namespace

bool bulk_rows(std::int64_t tokens, std::int64_t topk, std::int64_t row_bytes) {
  return topk <= 32 && tokens < (std::int64_t{1} << 30) && row_bytes % 16 == 0 &&
         row_bytes >= 1024 && std::max<std::int64_t>(topk, kGatherWarps) * row_bytes <= kMostBytes;
}

int launch_bulk_gather(std::int64_t tokens, std::int64_t topk, std::int64_t row_bytes,
                       const void* x, const std::int32_t* token_row, void* xs, void* stream) {
  return launch<std::int64_t, int, int, const unsigned char*, const std::int32_t*, unsigned char*>(
      gather, static_cast<unsigned>((tokens + kGatherWarps - 1) / kGatherWarps), 32 * kGatherWarps,
      kGatherWarps * row_bytes, stream, tokens, static_cast<int>(topk), static_cast<int>(row_bytes),
      static_cast<const unsigned char*>(x), token_row, static_cast<unsigned char*>(xs));
}

template <class S>
int launch_bulk_combine(std::int64_t tokens, std::int64_t topk, std::int64_t row_bytes, const S* ys,
                        const std::int32_t* token_row, S* out, bool accumulate, void* stream) {
  return launch<int, int, const unsigned char*, const std::int32_t*, unsigned char*, bool>(
      combine<S>, static_cast<unsigned>(tokens), kCombineThreads, topk * row_bytes, stream,
      static_cast<int>(topk), static_cast<int>(row_bytes),
      reinterpret_cast<const unsigned char*>(ys), token_row, reinterpret_cast<unsigned char*>(out),
      accumulate);
}

template int launch_bulk_combine(std::int64_t, std::int64_t, std::int64_t, const float*,
                                 const std::int32_t*, float*, bool, void*);
template int launch_bulk_combine(std::int64_t, std::int64_t, std::int64_t, const execution::Bf16*,
                                 const std::int32_t*, execution::Bf16*, bool, void*);

}  // namespace stowage::kernels::moe
