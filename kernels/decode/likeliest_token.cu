// The likeliest token of each row of logits and its log-probability, by likeliest_token.hpp. A
// block a row reads it twice, the second time from the second-level cache: for the largest logit,
// then for the sum of exponentials. Both are joined lane by lane, then warp by warp, in a fixed
// order.

#include <cmath>

#include "kernels/decode/decode_launch.hpp"
#include "kernels/hopper/warp.cuh"

namespace stowage::kernels::decode {
namespace {

constexpr int kLanes = 32, kWarps = 32, kThreads = kWarps * kLanes;

/// A logit and its token; of equal logits the first token is the larger.
struct Best {
  float logit;
  int token;

  __device__ void join(float other_logit, int other_token) {
    if (other_logit > logit || (other_logit == logit && other_token < token))
      logit = other_logit, token = other_token;
  }
  __device__ void join_lanes() {
    for (int mask = 1; mask < kLanes; mask *= 2) {
      const float other_logit = __shfl_xor_sync(0xFFFFFFFFU, logit, mask);
      join(other_logit, __shfl_xor_sync(0xFFFFFFFFU, token, mask));
    }
  }
};

__global__ void __launch_bounds__(kThreads) likeliest_kernel(const Likeliest args) {
  __shared__ Best best_of[kWarps];
  __shared__ float sum_of[kWarps];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes, warp = thread / kLanes;
  const float* logits = args.logits + static_cast<std::int64_t>(blockIdx.x) * args.vocabulary;
  Best best{-INFINITY, args.vocabulary};
  bool finite = true;
#pragma unroll 8
  for (int i = thread; i < args.vocabulary; i += kThreads) {
    const float logit = logits[i];
    finite = finite && isfinite(logit);
    best.join(logit, i);
  }
  best.join_lanes();
  if (lane == 0) best_of[warp] = best;
  finite = __syncthreads_and(static_cast<int>(finite)) != 0;
  best = best_of[lane];
  best.join_lanes();
  float sum = 0;
#pragma unroll 8
  for (int i = thread; i < args.vocabulary; i += kThreads) sum += expf(logits[i] - best.logit);
  sum = hopper::lanes_sum<kLanes>(sum);
  if (lane == 0) sum_of[warp] = sum;
  __syncthreads();
  if (warp > 0) return;
  sum = hopper::lanes_sum<kLanes>(sum_of[lane]);
  if (lane > 0) return;
  args.tokens[blockIdx.x] = min(best.token, args.vocabulary - 1);
  args.log_probabilities[blockIdx.x] = finite ? -logf(sum) : NAN;
}

}  // namespace

int launch(const Likeliest& args, void* stream) {
  if (args.rows == 0) return cudaSuccess;
  likeliest_kernel<<<static_cast<unsigned>(args.rows), kThreads, 0,
                     static_cast<cudaStream_t>(stream)>>>(args);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::decode
