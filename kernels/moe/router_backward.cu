// Gradient of the router's weights and losses with respect to its logits.
//
//   weights  w_r = scaling s_r / S, S = sum_r s_r + 1e-20:
//            ds_r += (scaling dw_r - sum_q dw_q w_q) / S
//   aux      c sum_e f_e P_e, linear in p = s / sum_e s:    ds_e += (g_e - sum_f g_f p_f) / sum_e s
//   sigmoid  dx_e = ds_e s_e (1 - s_e);   softmax           dx_e = s_e (ds_e - sum_f s_f ds_f)
//   z        k logsumexp(x)^2:                              dx_e += 2 k lse softmax(x)_e
//
// with g_e = d aux / d p_e, which is proportional to expert e's count. A warp has a token, in
// registers; sums over the chosen run in slot order, sums over experts by a butterfly.
// Cost: 8 E + 16 R bytes a token and up to 3 exponentials an expert.
// Limits: 1024 experts. Next: the product with the gate's weight in the same kernel.

#include "kernels/moe/scores.cuh"

namespace stowage::kernels::moe {
namespace {

struct Arguments {
  const float* dweights_rows;
  const std::int32_t* token_row;
  const float* logits;
  const std::int32_t* indices;
  const float* weights;
  const std::int32_t* offsets;
  const std::int32_t* routed;
  float* dlogits;
};

/// dscores += the gradient of the token's weights.
template <int kPer>
__device__ __forceinline__ void add_weight_gradient(const RouterOptions& options,
                                                    const Arguments& args, std::int64_t t,
                                                    const float* row, float lse, int lane,
                                                    float (&dscores)[kPer]) {
  const std::int64_t first = t * options.topk;
  float sum = options.normalise ? kDeviceScoreFloor : 1.0F;
  float projection = 0;
  for (int base = 0; options.normalise && base < options.topk; base += 32) {
    const int r = base + lane;
    float s = 0, product = 0;
    if (r < options.topk) {
      s = score(options.sigmoid, row[args.indices[first + r]], lse);
      product = args.dweights_rows[args.token_row[first + r]] * args.weights[first + r];
    }
    for (int i = 0; i < min(32, options.topk - base); ++i) {
      sum += __shfl_sync(0xffffffffU, s, i);
      projection += __shfl_sync(0xffffffffU, product, i);
    }
  }
  for (int base = 0; base < options.topk; base += 32) {
    const int r = base + lane;
    int expert = -1;
    float gradient = 0;
    if (r < options.topk) {
      expert = args.indices[first + r];
      gradient =
          (static_cast<float>(options.scaling) * args.dweights_rows[args.token_row[first + r]] -
           projection) /
          sum;
    }
    for (int i = 0; i < min(32, options.topk - base); ++i) {
      const int e = __shfl_sync(0xffffffffU, expert, i);
      const float g = __shfl_sync(0xffffffffU, gradient, i);
#pragma unroll
      for (int j = 0; j < kPer; ++j)
        if (e == 32 * j + lane) dscores[j] += g;
    }
  }
}

/// dscores += the gradient of the aux loss.
template <int kPer>
__device__ __forceinline__ void add_aux_gradient(const RouterOptions& options,
                                                 const Arguments& args, std::int32_t routed,
                                                 const float (&scores)[kPer], int lane,
                                                 float (&dscores)[kPer]) {
  const double per_row = options.aux_scale * options.aux_coeff * options.experts /
                         (static_cast<double>(routed) * routed * options.topk);
  float slope[kPer], products[kPer];
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const int e = 32 * j + lane;
    slope[j] = e < options.experts
                   ? static_cast<float>(per_row * (args.offsets[e + 1] - args.offsets[e]))
                   : 0.0F;
    products[j] = slope[j] * scores[j];
  }
  const float sum = kDeviceScoreFloor + row_sum(scores);
  const float projection = row_sum(products) / sum;
#pragma unroll
  for (int j = 0; j < kPer; ++j) dscores[j] += (slope[j] - projection) / sum;
}

template <int kPer>
__global__ void __launch_bounds__(32 * kTokenWarps)
    backward(std::int64_t tokens, const RouterOptions options, const Arguments args) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t t = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.x / 32;
  if (t >= tokens) return;
  const std::int32_t routed = *args.routed;
  float* dlogits = args.dlogits + t * options.experts;
  if (t >= routed) {
    for (int e = lane; e < options.experts; e += 32) dlogits[e] = 0;
    return;
  }
  const float* row = args.logits + t * options.experts;
  float logits[kPer], scores[kPer], dscores[kPer];
  load_logits(row, options.experts, lane, logits);
  const float lse = options.sigmoid && options.z_coeff == 0 ? 0.0F : logsumexp(logits);
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    scores[j] = score(options.sigmoid, logits[j], lse);
    dscores[j] = 0;
  }
  add_weight_gradient(options, args, t, row, lse, lane, dscores);
  if (options.aux_coeff != 0) add_aux_gradient(options, args, routed, scores, lane, dscores);
  float projection = 0;
  if (!options.sigmoid) {
    float products[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) products[j] = scores[j] * dscores[j];
    projection = row_sum(products);
  }
  const auto z_slope = static_cast<float>(options.aux_scale * options.z_coeff / routed);
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const int e = 32 * j + lane;
    float d = options.sigmoid ? dscores[j] * scores[j] * (1.0F - scores[j])
                              : scores[j] * (dscores[j] - projection);
    if (options.z_coeff != 0) d += z_slope * 2.0F * lse * expf(logits[j] - lse);
    if (e < options.experts) dlogits[e] = d;
  }
}

}  // namespace

int launch_router_backward(std::int64_t tokens, const RouterOptions& options,
                           const float* dweights_rows, const std::int32_t* token_row,
                           const float* logits, const std::int32_t* indices, const float* weights,
                           const std::int32_t* offsets, const std::int32_t* routed, float* dlogits,
                           void* stream) {
  if (tokens == 0) return cudaSuccess;
  const Arguments args{dweights_rows, token_row, logits, indices,
                       weights,       offsets,   routed, dlogits};
  return with_experts(options.experts, [&]<int kPer>() -> int {
    backward<kPer>
        <<<token_blocks(tokens), 32 * kTokenWarps, 0, static_cast<cudaStream_t>(stream)>>>(
            tokens, options, args);
    return cudaGetLastError();
  });
}

}  // namespace stowage::kernels::moe
