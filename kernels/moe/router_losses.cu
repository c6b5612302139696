// The load-balancing loss (Switch, arXiv 2101.03961 eq. 4) and the z loss (ST-MoE, arXiv 2202.08906
// eq. 5) of a router.
//
//   aux = c E / (N N R) sum_e count_e sum_t p_te,  z = c' / N sum_t logsumexp(x_t)^2
//
// One cluster of eight blocks reads everything, since the contract gives no workspace: a warp takes
// every W-th token and keeps one sum an expert in its registers; the sums of a block's warps meet
// in shared memory, those of the blocks in the first block through the cluster's, each in order.
// Cost: 4 E bytes a token, on 8 multiprocessors: a report, beside other work, not a hot path.
// Limits: 1024 experts.

#include "kernels/hopper/cluster.cuh"
#include "kernels/moe/scores.cuh"

namespace stowage::kernels::moe {
namespace {

constexpr int kBlocks = 8;  ///< the largest portable cluster

/// Registers hold two rows and a sum for each of kPer experts: fewer warps where there are many.
template <int kPer>
inline constexpr int kLossWarps = kPer <= 8 ? 32 : 16;

template <int kPer>
__device__ __forceinline__ void add_tokens(std::int64_t tokens, const RouterOptions& options,
                                           const float* logits, int first, int step, int lane,
                                           float (&sums)[kPer], float& squares) {
  float next[kPer];
  if (first < tokens)
    load_logits(logits + std::int64_t{first} * options.experts, options.experts, lane, next);
  for (std::int64_t t = first; t < tokens; t += step) {
    float scores[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) scores[j] = next[j];
    if (t + step < tokens)
      load_logits(logits + (t + step) * options.experts, options.experts, lane, next);
    const float lse = logsumexp(scores);
#pragma unroll
    for (float& value : scores) value = score(options.sigmoid, value, lse);
    const float sum = kDeviceScoreFloor + row_sum(scores);
#pragma unroll
    for (int j = 0; j < kPer; ++j) sums[j] += scores[j] / sum;
    squares += lse * lse;
  }
}

/// losses from the sums over all tokens of every p_e and, last, of logsumexp^2.
__device__ void finish(const RouterOptions& options, std::int64_t counted, const float* totals,
                       const std::int32_t* offsets, float* losses, bool accumulate) {
  float aux = 0;
  for (int e = static_cast<int>(threadIdx.x); e < options.experts; e += 32)
    aux += static_cast<float>(offsets[e + 1] - offsets[e]) * totals[e];
  aux = hopper::lanes_sum<32>(aux);
  float z = 0;
  if (counted > 0) {
    const auto n = static_cast<double>(counted);
    aux *= static_cast<float>(options.aux_scale * options.aux_coeff * options.experts /
                              (n * n * options.topk));
    z = totals[options.experts] * static_cast<float>(options.aux_scale * options.z_coeff / n);
  }
  if (threadIdx.x != 0) return;
  losses[0] = (counted > 0 ? aux : 0.0F) + (accumulate ? losses[0] : 0.0F);
  losses[1] = z + (accumulate ? losses[1] : 0.0F);
}

template <int kPer>
__global__ void __cluster_dims__(kBlocks) __launch_bounds__(32 * kLossWarps<kPer>)
    sum_losses(std::int64_t tokens, const RouterOptions options, const float* __restrict__ logits,
               const std::int32_t* __restrict__ offsets, const std::int32_t* __restrict__ routed,
               float* __restrict__ losses, bool accumulate) {
  constexpr int kWarps = kLossWarps<kPer>;
  extern __shared__ float shared[];  // (kWarps, E + 1); the first row ends as the block's sums
  const int width = options.experts + 1;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t counted = options.rows.before(*routed, tokens);
  float sums[kPer] = {};
  float squares = 0;
  add_tokens(counted, options, logits, static_cast<int>(blockIdx.x) * kWarps + warp,
             kBlocks * kWarps, lane, sums, squares);
#pragma unroll
  for (int j = 0; j < kPer; ++j)
    if (32 * j + lane < options.experts) shared[warp * width + 32 * j + lane] = sums[j];
  if (lane == 0) shared[warp * width + options.experts] = squares;
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < width; e += 32 * kWarps)
    for (int w = 1; w < kWarps; ++w) shared[e] += shared[w * width + e];
  __syncwarp();
  hopper::cluster_arrive();
  hopper::cluster_wait();
  if (blockIdx.x == 0) {
    for (int e = static_cast<int>(threadIdx.x); e < width; e += 32 * kWarps)
      for (unsigned b = 1; b < kBlocks; ++b) shared[e] += hopper::ld_shared_cluster(shared + e, b);
    __syncthreads();
    if (warp == 0) finish(options, counted > 0 ? *routed : 0, shared, offsets, losses, accumulate);
  }
  __syncwarp();
  hopper::cluster_arrive();  // no block leaves while its sums are read
  hopper::cluster_wait();
}

}  // namespace

}  // namespace stowage::kernels::moe

namespace stowage::kernels {

template <class S>
int RouterLosses::launch(const Operands<Pointers<S>>& o, void* stream) const {
  using namespace moe;
  return with_experts(options.experts, [&]<int kPer>() -> int {
    constexpr int kThreads = 32 * kLossWarps<kPer>;
    const auto shared_bytes =
        static_cast<int>(sizeof(float)) * kLossWarps<kPer> * (options.experts + 1);
    const cudaError_t status = cudaFuncSetAttribute(
        sum_losses<kPer>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (status != cudaSuccess) return status;
    sum_losses<kPer><<<kBlocks, kThreads, static_cast<unsigned>(shared_bytes),
                       static_cast<cudaStream_t>(stream)>>>(
        tokens, options, o.logits, o.offsets, o.cu_seqlens + starts - 1, o.losses, accumulate);
    return cudaGetLastError();
  });
}
template int RouterLosses::launch(const Operands<Pointers<float>>&, void*) const;
template int RouterLosses::launch(const Operands<Pointers<execution::Bf16>>&, void*) const;

}  // namespace stowage::kernels
