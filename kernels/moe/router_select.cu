// Selection of experts and their weights (arXiv 2412.19437 section 2.1.2).
//
//   indices_t = the R largest of score(logits_t) + bias, within the best groups; ties to the lower
//   weights_tr = scaling s_r / (sum_r s_r + 1e-20), or scaling s_r, s_r the chosen score
//
// A warp has a token, its scores in registers. A maximum over the warp is two instructions: redux
// on the score as an ordered integer, then redux on the index of those that have it; R of them
// choose the experts, and two for each group give the groups' scores. The sum of a token's chosen
// scores runs in slot order, as in the reference. A forced load (forced_load.hpp) has kernels of
// its own, with keys in the place of preferences.
// Cost: 4 E bytes a token in, 8 R out; at E 32 the launch itself.
// Limits: 1024 experts; each group costs two more searches (8 groups of 16: 38 us for 16384 tokens,
// 11 without).

#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/moe/scores.cuh"

namespace stowage::kernels::moe {
namespace {

/// Sum of a group's two largest, or its only one.
template <int kPer>
__device__ __forceinline__ float top2_sum(const float (&preference)[kPer], int begin, int end,
                                          int lane) {
  float members[kPer];
  float value[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const int e = 32 * j + lane;
    members[j] = e >= begin && e < end ? preference[j] : -INFINITY;
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    if (k == 1 && end - begin == 1) break;
    const int best = argmax(members, lane);
    float found = 0;
#pragma unroll
    for (int j = 0; j < kPer; ++j)
      if (best == 32 * j + lane) found = members[j];
    value[k] = __shfl_sync(0xffffffffU, found, best % 32);
    set(members, best, lane, -INFINITY);
  }
  return value[0] + value[1];
}

/// Takes the experts of all but the best groups out of the running.
template <int kPer>
__device__ __forceinline__ void limit_groups(const RouterOptions& options, int lane,
                                             float (&preference)[kPer]) {
  const int size = options.experts / options.groups;
  float group_score[kPer];
#pragma unroll
  for (float& value : group_score) value = -INFINITY;
  for (int g = 0; g < options.groups; ++g)
    set(group_score, g, lane, top2_sum(preference, g * size, (g + 1) * size, lane));
  std::uint32_t kept = 0;
  for (int k = 0; k < options.group_topk; ++k) {
    const int best = argmax(group_score, lane);
    set(group_score, best, lane, -INFINITY);
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const int e = 32 * j + lane;
      if (e >= best * size && e < (best + 1) * size) kept |= 1U << j;
    }
  }
#pragma unroll
  for (int j = 0; j < kPer; ++j)
    if ((kept >> j & 1U) == 0) preference[j] = -INFINITY;
}

/// The weights of a routed token's experts. `mine` is the lane's, the first 32 are in slot order;
/// chosen[r] is read by lane r % 32 alone.
__device__ __forceinline__ void weigh_token(const RouterOptions& options, const float* row,
                                            const std::int32_t* chosen, int mine, float lse,
                                            int lane, float* weights) {
  const auto score_of = [&](int r) {
    return score(options.sigmoid, row[options.topk <= 32 ? mine : chosen[r]], lse);
  };
  const float first = lane < options.topk ? score_of(lane) : 0.0F;
  auto scale = static_cast<float>(options.scaling);
  if (options.normalise) {
    float sum = kDeviceScoreFloor;
    for (int base = 0; base < options.topk; base += 32) {
      const int r = base + lane;
      const float s = base == 0 ? first : r < options.topk ? score_of(r) : 0.0F;
      for (int i = 0; i < min(32, options.topk - base); ++i) sum += __shfl_sync(0xffffffffU, s, i);
    }
    scale /= sum;
  }
  if (lane < options.topk) weights[lane] = first * scale;
  for (int r = 32 + lane; r < options.topk; r += 32) weights[r] = score_of(r) * scale;
}

/// Takes the experts of the largest preferences. @return of the last 32 the lane's
template <class T, int kPer>
__device__ __forceinline__ int choose(int topk, T (&preference)[kPer], int lane,
                                      std::int32_t* chosen) {
  int mine = 0;
  for (int r = 0; r < topk; ++r) {
    const int best = argmax(preference, lane);
    set(preference, best, lane, kOut<T>);
    if (r % 32 == lane) mine = best;
    if ((r % 32 == 31 || r + 1 == topk) && r - r % 32 + lane <= r) chosen[r - r % 32 + lane] = mine;
  }
  return mine;
}

/// The order of a forced load: the smallest key first.
template <int kPer>
__device__ __forceinline__ void draw(const RouterOptions& options, std::int64_t token, int lane,
                                     std::uint32_t (&preference)[kPer]) {
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const int e = 32 * j + lane;
    preference[j] = e < options.experts ? ~detail::forced_key(options.load, options.experts,
                                                              options.layer, token, e)
                                        : kOut<std::uint32_t>;
  }
}

template <int kPer, bool kForced>
__global__ void __launch_bounds__(32 * kTokenWarps)
    select(std::int64_t tokens, const RouterOptions options, const float* __restrict__ logits,
           const float* __restrict__ bias, const std::int32_t* __restrict__ routed,
           std::int32_t* indices, float* __restrict__ weights) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t t = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.x / 32;
  hopper::griddepcontrol_wait();
  if (t >= tokens) return;
  std::int32_t* chosen = indices + t * options.topk;
  float* weight = weights == nullptr ? nullptr : weights + t * options.topk;
  const float* row = logits + t * options.experts;
  float preference[kPer];
  load_logits(row, options.experts, lane, preference);  // beside the count of tokens
  if (options.rows.token(t) >= *routed) {
    for (int r = lane; r < options.topk; r += 32) {
      chosen[r] = -1;
      if (weight != nullptr) weight[r] = 0;
    }
    return;
  }
  const float lse = options.sigmoid ? 0.0F : logsumexp(preference);
  int mine;
  if constexpr (kForced) {
    std::uint32_t drawn[kPer];
    draw(options, options.rows.token(t), lane, drawn);
    mine = choose(options.topk, drawn, lane, chosen);
  } else {
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const int e = 32 * j + lane;
      preference[j] = e < options.experts ? score(options.sigmoid, preference[j], lse) +
                                                (bias != nullptr ? bias[e] : 0.0F)
                                          : -INFINITY;
    }
    if (options.groups > 1) limit_groups(options, lane, preference);
    mine = choose(options.topk, preference, lane, chosen);
  }
  if (weight != nullptr) weigh_token(options, row, chosen, mine, lse, lane, weight);
}

template <int kPer>
__global__ void __launch_bounds__(32 * kTokenWarps)
    weigh(std::int64_t tokens, const RouterOptions options, const float* __restrict__ logits,
          const std::int32_t* __restrict__ indices, float* __restrict__ weights) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t t = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.x / 32;
  if (t >= tokens) return;
  const std::int32_t* chosen = indices + t * options.topk;
  const float* row = logits + t * options.experts;
  float* weight = weights + t * options.topk;
  if (chosen[0] < 0) {
    for (int r = lane; r < options.topk; r += 32) weight[r] = 0;
    return;
  }
  float lse = 0;
  if (!options.sigmoid) {
    float all[kPer];
    load_logits(row, options.experts, lane, all);
    lse = logsumexp(all);
  }
  const int mine = lane < options.topk ? chosen[lane] : 0;
  weigh_token(options, row, chosen, mine, lse, lane, weight);
}

}  // namespace

}  // namespace stowage::kernels::moe

namespace stowage::kernels {

template <class S>
int RouterSelect::launch(const Operands<Pointers<S>>& o, void* stream) const {
  using namespace moe;
  if (tokens == 0) return cudaSuccess;
  return with_experts(options.experts, [&]<int kPer>() -> int {
    const auto kernel = options.load == ForcedLoad::none ? select<kPer, false> : select<kPer, true>;
    return hopper::launch_dependent(kernel, token_blocks(tokens), 32 * kTokenWarps, 0,
                                    static_cast<cudaStream_t>(stream), tokens, options, o.logits,
                                    o.bias, o.cu_seqlens + starts - 1, o.indices, o.weights);
  });
}
template int RouterSelect::launch(const Operands<Pointers<float>>&, void*) const;
template int RouterSelect::launch(const Operands<Pointers<execution::Bf16>>&, void*) const;

template <class S>
int RouterWeights::launch(const Operands<Pointers<S>>& o, void* stream) const {
  using namespace moe;
  if (tokens == 0) return cudaSuccess;
  return with_experts(options.experts, [&]<int kPer>() -> int {
    weigh<kPer><<<token_blocks(tokens), 32 * kTokenWarps, 0, static_cast<cudaStream_t>(stream)>>>(
        tokens, options, o.logits, o.indices, o.weights);
    return cudaGetLastError();
  });
}
template int RouterWeights::launch(const Operands<Pointers<float>>&, void*) const;
template int RouterWeights::launch(const Operands<Pointers<execution::Bf16>>&, void*) const;

}  // namespace stowage::kernels
