#pragma once

#include <cstdint>

#include "execution/dtype.hpp"

/// Launches of the steps on a cudaStream_t, each of which returns the cudaError_t; S is float or
/// Bf16.
namespace stowage::kernels::decode {

template <class S>
struct Convolution {
  std::int64_t sequences;
  int channels, width;
  const S* x;
  std::int64_t x_stride;
  const S* w;
  const S* b;  ///< null: none
  const std::int32_t* positions;
  S* rows;
  S* y;
};
template <class S>
int launch(const Convolution<S>& args, void* stream);

template <class S>
struct Scan {
  std::int64_t sequences;
  int heads, head_dim, groups, state_dim;
  float dt_min, dt_max;
  const S* xbc;
  const S* dt;
  std::int64_t xbc_stride, dt_stride;
  const S* a_log;
  const S* d;
  const S* dt_bias;
  const std::int32_t* positions;
  float* state;
  S* y;
};
template <class S>
int launch(const Scan<S>& args, void* stream);

template <class S>
struct DeltaRule {
  std::int64_t sequences;
  int key_heads, value_heads, key_dim, value_dim;
  float epsilon;  ///< of the norms of q and k
  const S* qkv;
  const S* ba;
  const S* a;  ///< (B, Hv N) if each column has a decay of its own; else null
  std::int64_t qkv_stride, ba_stride;
  const S* a_log;
  const S* dt_bias;
  const std::int32_t* positions;
  float* state;
  S* y;
};
template <class S>
int launch(const DeltaRule<S>& args, void* stream);

/// Positions of a cache that one block reads.
inline constexpr std::int64_t kPart = 256;
/// The widest head that a block has room for.
inline constexpr std::int64_t kMostHeadDim = 256;

constexpr std::int64_t parts(std::int64_t window) { return (window + kPart - 1) / kPart; }

template <class S>
struct Attention {
  std::int64_t sequences, window;
  int heads, kv_heads, head_dim;
  float scale;
  const S* qkv;
  const std::int32_t* positions;
  S* keys;
  S* values;
  S* o;
  float*
      workspace;  ///< (B, H, parts, P + 2): sums of values, the largest score, the sum of weights
};
template <class S>
int launch(const Attention<S>& args, void* stream);

/// Whether tensor cores serve this case: what attention_step_mma.cu leaves in the caches and the
/// workspace is all but the last of launch(). Returns the cudaError_t.
bool has_mma(const Attention<execution::Bf16>& args);
int launch_mma_parts(const Attention<execution::Bf16>& args, void* stream);

struct Likeliest {
  std::int64_t rows;
  int vocabulary;
  const float* logits;
  std::int32_t* tokens;
  float* log_probabilities;
};
int launch(const Likeliest& args, void* stream);

}  // namespace stowage::kernels::decode
