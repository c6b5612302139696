// Orders the documents of a packed batch by decreasing length, counts their tiles, and gives out
// the room for stored score gradients, on the device, so that a captured launch serves every batch
// that fits its capacity.
//
// Each thread ranks one document against all others: O(C^2 / threads) shared-memory reads; 161
// documents take about as long as the launch itself, and no sort or scan is needed. Ties keep the
// batch's order, so the result is a function of the lengths alone. The room for dS goes to the
// shortest documents first, so those without are the first in the order: they are the ones with the
// most work for each byte.

#include "kernels/attention/attention_launch.hpp"
#include "kernels/attention/attention_persistent.cuh"
#include "kernels/attention/attention_schedule.cuh"

namespace stowage::kernels::attention {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) attention_schedule_kernel(ScheduleTables s) {
  __shared__ int4 shared[kThreads];
  join_call();
  if (blockIdx.x == 0 && threadIdx.x == 0) *s.ticket = 0;
  if (s.cu_seqlens == nullptr) return;
  const int mine = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  // x: length, y: tiles, z: wide tiles, w: dS blocks
  const auto start_of = [&](int document) {
    return document == s.documents ? s.tokens : s.cu_seqlens[document];
  };
  const auto counts_of = [&](int document) {
    if (document >= s.documents) return int4{-1, 0, 0, 0};
    const int length = start_of(document + 1) - start_of(document);
    return int4{length, (length + s.tile_rows - 1) / s.tile_rows,
                (length + kStoredRows - 1) / kStoredRows,
                static_cast<int>(stored_blocks(s.causal, length))};
  };
  const int4 own = counts_of(mine);
  int place = 0;
  int first = 0;               // tiles before this document's,
  int wide = 0;                // wide ones,
  std::int64_t room_used = 0;  // and dS blocks of all shorter documents
  for (int base = 0; base < s.documents; base += kThreads) {
    __syncthreads();
    shared[threadIdx.x] = counts_of(base + static_cast<int>(threadIdx.x));
    __syncthreads();
    const int end = min(kThreads, s.documents - base);
    for (int i = 0; i < end; ++i) {
      const int4 other = shared[i];
      if (other.x > own.x || (other.x == own.x && base + i < mine)) {
        ++place;
        first += other.y;
        wide += other.z;
      } else if (base + i != mine) {
        room_used += other.w;
      }
    }
  }
  if (mine <= s.documents) s.starts[mine] = start_of(mine);
  if (mine >= s.documents) return;
  const int first_end = first + own.y;
  const int wide_end = wide + own.z;
  s.order[place] = mine;
  s.first[place] = first;
  if (place == s.documents - 1) s.first[s.documents] = first_end;
  if (s.wide == nullptr) return;
  s.wide[place] = wide;
  if (place == s.documents - 1) s.wide[s.documents] = wide_end;
  const bool stored = room_used + own.w <= s.capacity;
  s.stored_at[mine] = stored ? static_cast<int>(room_used) : -1;
  if (stored && place == 0) s.limits[0] = s.limits[1] = 0;
  if (!stored && room_used <= s.capacity) {  // the last one without room
    s.limits[0] = first_end;
    s.limits[1] = wide_end;
  }
}

}  // namespace

cudaError_t launch_attention_schedule(const ScheduleTables& tables, cudaStream_t stream) {
  const int blocks =
      tables.cu_seqlens == nullptr ? 1 : tables.documents / kThreads + 1;  // thread `documents` too
  attention_schedule_kernel<<<blocks, kThreads, 0, stream>>>(tables);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::attention
