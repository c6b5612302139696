#pragma once

#include <cstdint>

#include "kernels/hopper/convert.cuh"
#include "kernels/hopper/warp.cuh"

/// The running softmax of the forward on accumulators of scores (64 queries x kKeys of a
/// warpgroup): a thread has two rows, r and r + 8, and four lanes share one.
namespace stowage::kernels::attention {

/// The reference of a row moves once a score is 2^kFar above it. bf16 keeps as many digits of
/// exponentials up to there, and fp32 sums have room for them.
constexpr float kFar = 8;

/// The running reference and sum of a thread's two rows; the sum covers this thread's columns only.
/// The reference is the largest score seen, or was until lately.
struct RowState {
  float reference[2];
  float sum[2];
};

/// The largest of each row's scores and of what was seen before.
template <int kKeys>
__device__ __forceinline__ void row_maximum(float (&maximum)[2], const float (&s)[kKeys / 2],
                                            const RowState& state) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    maximum[r] = state.reference[r];
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      maximum[r] = fmaxf(maximum[r], fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
    }
    maximum[r] = hopper::lanes_max<4>(maximum[r]);
  }
}

/// Turns scores into exp2 of the scaled distance to the reference and adds them to the sum.
template <int kKeys>
__device__ __forceinline__ void exponentiate(float (&s)[kKeys / 2], RowState& state,
                                             float scale_log2) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    // A row that has seen no key yet keeps 0 as its reference: its exponentials are 0, not NaN.
    const float offset = state.reference[r] == -INFINITY ? 0.0F : state.reference[r] * scale_log2;
    float sum0 = 0;
    float sum1 = 0;
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      s[4 * j + 2 * r] = hopper::ex2(s[4 * j + 2 * r] * scale_log2 - offset);
      s[4 * j + 2 * r + 1] = hopper::ex2(s[4 * j + 2 * r + 1] * scale_log2 - offset);
      sum0 += s[4 * j + 2 * r];
      sum1 += s[4 * j + 2 * r + 1];
    }
    state.sum[r] += sum0 + sum1;
  }
}

/// Whether any row of the warp has a score so far above its reference that the reference should
/// move: that costs a pass over o, and up to there exponentials and sums only grow.
__device__ __forceinline__ bool reference_moves(const RowState& state, const float (&maximum)[2],
                                                float scale_log2) {
  const float rise = fmaxf(maximum[0] - state.reference[0], maximum[1] - state.reference[1]);
  return __any_sync(~0U, rise * scale_log2 > kFar);
}

/// What o and the sums must be multiplied by when references move on to `maximum`: those that
/// should, and no others, so that a row's bits depend on its own scores alone.
__device__ __forceinline__ void move_reference(float (&rescale)[2], RowState& state,
                                               const float (&maximum)[2], float scale_log2) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool moves = (maximum[r] - state.reference[r]) * scale_log2 > kFar;
    rescale[r] = moves ? hopper::ex2((state.reference[r] - maximum[r]) * scale_log2) : 1.0F;
    state.sum[r] *= rescale[r];
    if (moves) state.reference[r] = maximum[r];
  }
}

/// Rounds the exponentials to the A operand of a product over kRoom keys; those behind have none.
template <int kRoom, int kKeys>
__device__ __forceinline__ void pack(std::uint32_t (&p)[kRoom / 4], const float (&s)[kKeys / 2]) {
#pragma unroll
  for (int i = 0; i < kRoom / 4; ++i) {
    p[i] = i < kKeys / 4 ? hopper::pack_bf16(s[2 * (i % (kKeys / 4))], s[2 * (i % (kKeys / 4)) + 1])
                         : 0;
  }
}

}  // namespace stowage::kernels::attention
