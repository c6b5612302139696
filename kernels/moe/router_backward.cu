// Gradient of the router's weights and losses with respect to its logits.
//
//   weights  w_r = scaling s_r / S, S = sum_r s_r + 1e-20:
//            ds_r += (scaling dw_r - sum_q dw_q w_q) / S
//   aux      c sum_e f_e P_e, linear in p = s / sum_e s:    ds_e += (g_e - sum_f g_f p_f) / sum_e s
//   sigmoid  dx_e = ds_e s_e (1 - s_e);   softmax           dx_e = s_e (ds_e - sum_f s_f ds_f)
//   z        k logsumexp(x)^2:                              dx_e += 2 k lse softmax(x)_e
//
// with g_e = d aux / d p_e, which is proportional to expert e's count. A warp has a token, in
// registers, and all its loads are on their way before the first is needed; sums over the chosen
// run in slot order, sums over experts by a butterfly.
// Cost: 8 E + 16 R bytes a token and up to 3 exponentials an expert; its time is that of the launch
// and of two waits for memory, the second for what token_row names. Limits: 1024 experts.

#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/moe/scores.cuh"

namespace stowage::kernels::moe {
namespace {

using hopper::griddepcontrol_launch_dependents;
using hopper::griddepcontrol_wait;

/// Blocks of a multiprocessor at least: what the registers hold without a spill.
template <int kPer>
inline constexpr int kBlocks = kPer <= 2   ? 6
                               : kPer == 4 ? 5
                               : kPer == 8 ? 2
                                           : 1;

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

/// What lane r % 32 has of a token's slot r; loaded before it is known that the token is routed.
struct Slot {
  int expert = -1;
  float dweight = 0;
  float product = 0;  ///< of dweight and the weight
};

__device__ __forceinline__ Slot load_slot(const RouterOptions& options, const Arguments& args,
                                          std::int64_t t, int r) {
  Slot slot;
  if (r >= options.topk) return slot;
  const std::int64_t pair = t * options.topk + r;
  const std::int32_t row = args.token_row[pair];
  slot.expert = args.indices[pair];
  const float weight = args.weights[pair];
  if (row >= 0) slot.dweight = args.dweights_rows[row];
  slot.product = slot.dweight * weight;
  return slot;
}

/// dscores += the gradient of the token's weights. `first` has the first 32 slots.
template <int kPer>
__device__ __forceinline__ void add_weight_gradient(const RouterOptions& options,
                                                    const Arguments& args, std::int64_t t,
                                                    const Slot& first, const float* row, float lse,
                                                    int lane, float (&dscores)[kPer]) {
  float sum = options.normalise ? kDeviceScoreFloor : 1.0F;
  float projection = 0;
  for (int base = 0; options.normalise && base < options.topk; base += 32) {
    const Slot slot = base == 0 ? first : load_slot(options, args, t, base + lane);
    const float s = slot.expert >= 0 ? score(options.sigmoid, row[slot.expert], lse) : 0.0F;
    for (int i = 0; i < min(32, options.topk - base); ++i) {
      sum += __shfl_sync(0xffffffffU, s, i);
      projection += __shfl_sync(0xffffffffU, slot.product, i);
    }
  }
  for (int base = 0; base < options.topk; base += 32) {
    const Slot slot = base == 0 ? first : load_slot(options, args, t, base + lane);
    const float gradient = (static_cast<float>(options.scaling) * slot.dweight - projection) / sum;
    for (int i = 0; i < min(32, options.topk - base); ++i) {
      const int e = __shfl_sync(0xffffffffU, slot.expert, i);
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
__global__ void __launch_bounds__(32 * kTokenWarps, kBlocks<kPer>)
    backward(std::int64_t tokens, const RouterOptions options, const Arguments args) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t t = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.x / 32;
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  if (t >= tokens) return;
  const std::int32_t routed = *args.routed;
  const Slot slot = load_slot(options, args, t, lane);
  const float* row = args.logits + t * options.experts;
  float logits[kPer], scores[kPer], dscores[kPer];
  load_logits(row, options.experts, lane, logits);
  float* dlogits = args.dlogits + t * options.experts;
  if (options.rows.token(t) >= routed) {
    for (int e = lane; e < options.experts; e += 32) dlogits[e] = 0;
    return;
  }
  const float lse = options.sigmoid && options.z_coeff == 0 ? 0.0F : logsumexp(logits);
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    scores[j] = score(options.sigmoid, logits[j], lse);
    dscores[j] = 0;
  }
  add_weight_gradient(options, args, t, slot, row, lse, lane, dscores);
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

}  // namespace stowage::kernels::moe

namespace stowage::kernels {

template <class S>
int RouterBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  using namespace moe;
  if (tokens == 0) return cudaSuccess;
  const Arguments args{
      o.dweights_rows,           o.token_row, o.logits, o.indices, o.weights, o.offsets,
      o.cu_seqlens + starts - 1, o.dlogits};
  return with_experts(options.experts, [&]<int kPer>() -> int {
    return hopper::launch_dependent(backward<kPer>, token_blocks(tokens), 32 * kTokenWarps, 0,
                                    static_cast<cudaStream_t>(stream), tokens, options, args);
  });
}
template int RouterBackward::launch(const Operands<Pointers<float>>&, void*) const;
template int RouterBackward::launch(const Operands<Pointers<execution::Bf16>>&, void*) const;

}  // namespace stowage::kernels
