// Attention for head dimensions and devices without a path of their own: correct and simple, not
// fast.
//
// Layout and results as in attention_cuda.hpp. Numerics: everything in fp32 from bf16 or fp32
// inputs; the forward keeps a running maximum. Cost: as the definitions, on plain fp32 units.
// Deterministic: a row has one owner, sums are taken in order of keys (or heads and queries) with a
// fixed butterfly.
// Design: a warp owns a row; 32 rows of the other side are scored at a time, one by each lane, and
// then added up with the lanes spread over the head dimension.
// Limit, counted: each lane walks a row of its own, so a scored element costs a load of its own
// sector and three instructions.

#include <cuda_bf16.h>

#include "kernels/attention/attention_launch.hpp"
#include "kernels/hopper/warp.cuh"

namespace stowage::kernels::attention {
namespace {

using hopper::lanes_max;
using hopper::lanes_sum;

constexpr int kWarps = 4;
constexpr int kColumns = 8;  // of a lane: head dimensions up to 256

struct Document {
  int first, length;
};

/// The document of a row.
__device__ Document find_document(const SimpleParameters& p, int row) {
  if (p.uniform_length > 0) return {row / p.uniform_length * p.uniform_length, p.uniform_length};
  const int tail = p.cu_seqlens[p.documents];
  if (row >= tail) return {tail, static_cast<int>(p.tokens) - tail};
  int low = 0;
  int high = p.documents;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (p.cu_seqlens[middle] <= row ? low : high) = middle;
  }
  return {p.cu_seqlens[low], p.cu_seqlens[low + 1] - p.cu_seqlens[low]};
}

/// The element that a head of a row begins with; rows are counted over all sequences.
__device__ std::int64_t element(const SimpleParameters& p, const HeadStrides& s, int row,
                                int head) {
  const int sequence = p.uniform_length > 0 ? row / p.uniform_length : 0;
  return sequence * s.batch + (row - sequence * p.uniform_length) * s.row + head * s.head;
}

template <class T>
__device__ const T* row_of(const SimpleParameters& p, const void* base, const HeadStrides& strides,
                           int row, int head) {
  return static_cast<const T*>(base) + element(p, strides, row, head);
}

template <class T>
__device__ float dot(const T* a, const T* b, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<float>(a[i]) * static_cast<float>(b[i]);
  return sum;
}

/// sums[c] += sum over the lanes' rows, in order of lanes, of weight * row[lane + 32 c].
template <class T>
__device__ void add_rows(float (&sums)[kColumns], float weight, const T* row, std::int64_t stride,
                         int rows, int head_dim) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < rows; ++i) {
    const float w = __shfl_sync(0xFFFFFFFFU, weight, i);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = lane + 32 * c;
      if (column < head_dim) sums[c] += w * static_cast<float>(row[i * stride + column]);
    }
  }
}

template <class T>
__device__ void write_row(const SimpleParameters& p, void* base, const HeadStrides& strides,
                          int row, int head, const float (&values)[kColumns], float factor) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  auto* out = static_cast<T*>(base) + element(p, strides, row, head);
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int column = lane + 32 * c;
    if (column < p.head_dim) out[column] = static_cast<T>(values[c] * factor);
  }
}

template <class T>
__global__ void __launch_bounds__(32 * kWarps) attention_simple_forward_kernel(SimpleParameters p) {
  const int row = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
  const int head = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (row >= p.queries) return;
  const int token = p.first_query + row;
  const Document document = find_document(p, token);
  const int kv = head / p.heads_per_kv;
  const int keys = p.causal ? token - document.first + 1 : document.length;
  const T* q = row_of<T>(p, p.q, p.q_strides, row, head);
  float o[kColumns] = {};
  float maximum = -INFINITY;
  float sum = 0;
  for (int first = 0; first < keys; first += 32) {
    const int count = min(32, keys - first);
    const int key = document.first + first + min(lane, count - 1);
    float score = -INFINITY;
    if (lane < count) {
      score = p.scale * dot(q, row_of<T>(p, p.k, p.k_strides, key, kv), p.head_dim);
    }
    const float next = fmaxf(maximum, lanes_max<32>(score));
    const float rescale = expf(maximum - next);
    const float probability = lane < count ? expf(score - next) : 0.0F;
    sum = sum * rescale + lanes_sum<32>(probability);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) o[c] *= rescale;
    add_rows(o, probability, row_of<T>(p, p.v, p.v_strides, document.first + first, kv),
             p.v_strides.row, count, p.head_dim);
    maximum = next;
  }
  write_row<T>(p, p.o, p.o_strides, row, head, o, 1.0F / sum);
  if (lane == 0) p.lse[static_cast<std::int64_t>(head) * p.queries + row] = maximum + logf(sum);
}

/// dQ of a row, and the row's delta = sum(d_o * o) for the kernel of the keys.
template <class T>
__global__ void __launch_bounds__(32 * kWarps) attention_simple_dq_kernel(SimpleParameters p) {
  const int row = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
  const int head = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (row >= p.queries) return;
  const int token = p.first_query + row;
  const Document document = find_document(p, token);
  const int kv = head / p.heads_per_kv;
  const int keys = p.causal ? token - document.first + 1 : document.length;
  const T* q = row_of<T>(p, p.q, p.q_strides, row, head);
  const T* d_o = row_of<T>(p, p.d_o, p.d_o_strides, row, head);
  const float lse = p.lse[static_cast<std::int64_t>(head) * p.queries + row];
  const float delta = dot(d_o, row_of<T>(p, p.o, p.o_strides, row, head), p.head_dim);
  if (lane == 0) p.delta[static_cast<std::int64_t>(head) * p.queries + row] = delta;
  float dq[kColumns] = {};
  for (int first = 0; first < keys; first += 32) {
    const int count = min(32, keys - first);
    const int key = document.first + first + min(lane, count - 1);
    float ds = 0;
    if (lane < count) {
      const float score = p.scale * dot(q, row_of<T>(p, p.k, p.k_strides, key, kv), p.head_dim);
      const float dp = dot(d_o, row_of<T>(p, p.v, p.v_strides, key, kv), p.head_dim);
      ds = expf(score - lse) * (dp - delta);
    }
    add_rows(dq, ds, row_of<T>(p, p.k, p.k_strides, document.first + first, kv), p.k_strides.row,
             count, p.head_dim);
  }
  write_row<T>(p, p.dq, p.dq_strides, row, head, dq, p.scale);
}

template <class T, class G>
__global__ void __launch_bounds__(32 * kWarps) attention_simple_dkv_kernel(SimpleParameters p) {
  const int row = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
  const int kv = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (row >= p.tokens) return;
  const Document document = find_document(p, row);
  const T* k = row_of<T>(p, p.k, p.k_strides, row, kv);
  const T* v = row_of<T>(p, p.v, p.v_strides, row, kv);
  const int begin = max(p.causal ? row : document.first, p.first_query) - p.first_query;
  const int end = min(document.first + document.length - p.first_query, p.queries);
  float dk[kColumns] = {};
  float dv[kColumns] = {};
  for (int head = kv * p.heads_per_kv; head < (kv + 1) * p.heads_per_kv; ++head) {
    for (int first = begin; first < end; first += 32) {
      const int count = min(32, end - first);
      const int query = first + min(lane, count - 1);
      float probability = 0;
      float ds = 0;
      if (lane < count) {
        const std::int64_t at = static_cast<std::int64_t>(head) * p.queries + query;
        const float score =
            p.scale * dot(k, row_of<T>(p, p.q, p.q_strides, query, head), p.head_dim);
        const float dp = dot(v, row_of<T>(p, p.d_o, p.d_o_strides, query, head), p.head_dim);
        probability = expf(score - p.lse[at]);
        ds = probability * (dp - p.delta[at]);
      }
      add_rows(dv, probability, row_of<T>(p, p.d_o, p.d_o_strides, first, head), p.d_o_strides.row,
               count, p.head_dim);
      add_rows(dk, ds, row_of<T>(p, p.q, p.q_strides, first, head), p.q_strides.row, count,
               p.head_dim);
    }
  }
  write_row<G>(p, p.dk, p.dk_strides, row, kv, dk, p.scale);
  write_row<G>(p, p.dv, p.dv_strides, row, kv, dv, 1.0F);
}

dim3 grid(std::int64_t rows, int heads) {
  return {static_cast<unsigned>((rows + kWarps - 1) / kWarps), static_cast<unsigned>(heads)};
}

template <class T>
cudaError_t forward(const SimpleParameters& p, cudaStream_t stream) {
  attention_simple_forward_kernel<T><<<grid(p.queries, p.heads), 32 * kWarps, 0, stream>>>(p);
  return cudaGetLastError();
}

template <class T>
cudaError_t backward(const SimpleParameters& p, cudaStream_t stream) {
  const int kv_heads = p.heads / p.heads_per_kv;
  attention_simple_dq_kernel<T><<<grid(p.queries, p.heads), 32 * kWarps, 0, stream>>>(p);
  const dim3 keys = grid(p.tokens, kv_heads);
  if (p.fp32_keys)
    attention_simple_dkv_kernel<T, float><<<keys, 32 * kWarps, 0, stream>>>(p);
  else
    attention_simple_dkv_kernel<T, T><<<keys, 32 * kWarps, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_attention_simple_forward(const SimpleParameters& p, cudaStream_t stream) {
  return p.fp32 ? forward<float>(p, stream) : forward<__nv_bfloat16>(p, stream);
}

cudaError_t launch_attention_simple_backward(const SimpleParameters& p, cudaStream_t stream) {
  return p.fp32 ? backward<float>(p, stream) : backward<__nv_bfloat16>(p, stream);
}

}  // namespace stowage::kernels::attention
