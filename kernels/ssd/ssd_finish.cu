// The last sums of the backward: from the shares of chunks and units to ddt_raw and the parameters.
//
//   ddt_raw = ddt sigmoid(dt_raw + dt_bias) where dt is not clamped, ddt = sum over a head's units
//   ddt_bias = sum_t ddt_raw,   dA_log = A sum dA,   dD = sum dD, over chunks in a fixed order
//
// Heads of one unit (P = 64, 80) have their ddt_raw already; for the others one block a chunk and
// 16 heads turns (unit, token) into (token, head) through shared memory. Then one block a head adds
// the chunks. Deterministic.

#include "kernels/ssd/ssd_device.cuh"

namespace stowage::kernels::ssd {
namespace {

constexpr int kThreads = 256;
constexpr int kHeads = 16;  ///< of a block: a 32-byte sector of ddt_raw

__global__ void __launch_bounds__(kThreads) finish_steps(const FinishParameters p) {
  __shared__ float tile[kHeads][kChunk + 1];
  griddepcontrol_launch_dependents();
  griddepcontrol_wait();
  const int chunk = static_cast<int>(blockIdx.x);
  const int token = chunk * kChunk;
  const int head0 = static_cast<int>(blockIdx.y) * kHeads;
  const int heads = min(kHeads, p.sizes.heads - head0);
  const std::int64_t tokens = static_cast<std::int64_t>(p.sizes.chunks) * kChunk;
  for (int i = static_cast<int>(threadIdx.x); i < heads * kChunk; i += kThreads) {
    const int head = i / kChunk, t = i % kChunk;
    float sum = 0;
    for (int part = 0; part < p.sizes.parts; ++part) {
      const int unit = (head0 + head) * p.sizes.parts + part;
      sum += p.dstep[unit * tokens + token + t];
    }
    tile[head][t] = sum;
  }
  __syncthreads();
  const auto* raw = static_cast<const __nv_bfloat16*>(p.dt_raw);
  auto* out = static_cast<__nv_bfloat16*>(p.ddt_raw);
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * kChunk; i += kThreads) {
    const int head = i % kHeads, t = i / kHeads;
    if (head >= heads) continue;
    if (token + t >= p.sizes.tokens) {
      tile[head][t] = 0;
      continue;
    }
    const std::int64_t row = token + t;
    const float x = __bfloat162float(raw[row * p.dt_stride + head0 + head]) +
                    parameter(p.dt_bias, head0 + head, p.bf16_parameters);
    const float dt = softplus(x);
    const bool inside = dt >= p.dt_min && dt <= p.dt_max;
    const float value = inside ? tile[head][t] / (1 + expf(-x)) : 0;
    tile[head][t] = value;
    out[row * p.ddt_stride + head0 + head] = __float2bfloat16(value);
  }
  __syncthreads();
  for (int head = static_cast<int>(threadIdx.x / 32); head < heads; head += kThreads / 32) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const float sum = lanes_sum<32>(tile[head][lane] + tile[head][lane + 32]);
    if (lane == 0) {
      const std::int64_t unit = static_cast<std::int64_t>(head0 + head) * p.sizes.parts;
      p.sums[(static_cast<std::int64_t>(chunk) * p.sizes.units + unit) * 4 + 2] = sum;
    }
  }
}

__device__ __forceinline__ void put(float* to, int i, float value, bool accumulate) {
  to[i] = accumulate ? to[i] + value : value;
}

__global__ void __launch_bounds__(kThreads) finish_heads(const FinishParameters p) {
  __shared__ float partial[3][kThreads / 32];
  griddepcontrol_wait();
  const int head = static_cast<int>(blockIdx.x);
  float sums[3] = {0, 0, 0};  // dA, dD, ddt_bias
  for (std::int64_t chunk = threadIdx.x; chunk < p.sizes.chunks; chunk += kThreads) {
    for (int part = 0; part < p.sizes.parts; ++part) {
      const float4 share = reinterpret_cast<const float4*>(
          p.sums)[chunk * p.sizes.units + head * p.sizes.parts + part];
      sums[0] += share.x;
      sums[1] += share.y;
      sums[2] += share.z;
    }
  }
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    sums[k] = lanes_sum<32>(sums[k]);
    if (threadIdx.x % 32 == 0) partial[k][threadIdx.x / 32] = sums[k];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int k = 0; k < 3; ++k) {
    sums[k] = 0;
    for (const float value : partial[k]) sums[k] += value;
  }
  const float a = -expf(parameter(p.a_log, head, p.bf16_parameters));
  put(p.da_log, head, a * sums[0], p.accumulate);
  put(p.dd, head, sums[1], p.accumulate);
  put(p.ddt_bias, head, sums[2], p.accumulate);
}

}  // namespace

cudaError_t launch_finish(const FinishParameters& parameters, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(parameters.sizes.chunks),
                  static_cast<unsigned>((parameters.sizes.heads + kHeads - 1) / kHeads));
  if (parameters.sizes.parts > 1) {
    const cudaError_t status =
        launch_dependent(finish_steps, grid, kThreads, 0, stream, parameters);
    if (status != cudaSuccess) return status;
  }
  return launch_dependent(finish_heads, dim3(static_cast<unsigned>(parameters.sizes.heads)),
                          kThreads, 0, stream, parameters);
}

}  // namespace stowage::kernels::ssd
