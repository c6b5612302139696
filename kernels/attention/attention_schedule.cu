// First of a forward: clears the ticket of its tiles and orders packed documents.
//
// Limit: a launch and two misses of a cold cache one after the other, some microseconds.

#include "kernels/attention/attention_launch.hpp"
#include "kernels/attention/attention_order.cuh"
#include "kernels/attention/attention_persistent.cuh"

namespace stowage::kernels::attention {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) attention_schedule_kernel(ScheduleTables s) {
  join_call();
  const int mine = static_cast<int>((blockIdx.x * kThreads + threadIdx.x) / 32);
  if (mine == 0 && threadIdx.x == 0) *s.ticket = 0;
  if (s.cu_seqlens != nullptr) rank_document<false>(s, mine);
}

}  // namespace

cudaError_t launch_attention_schedule(const ScheduleTables& tables, cudaStream_t stream) {
  const int blocks = tables.cu_seqlens == nullptr ? 1 : ranking_blocks(tables.documents, kThreads);
  attention_schedule_kernel<<<blocks, kThreads, 0, stream>>>(tables);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::attention
