#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "run/measure/gpu.hpp"

namespace stowage::drivers::bench {

/// Attention of B documents of T tokens; rows of q, k and v are `row` elements apart, those of
/// o, d_o
/// are dense (H, P).
struct CudnnAttentionSizes {
  std::int64_t documents = 0;
  std::int64_t length = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t row = 0;
  bool causal = true;
};

/// The peer: cuDNN's fused attention through its C++ frontend, bf16 with fp32 sums, by the plan
/// that cuDNN chooses (heuristic mode A). It keeps its own log-sum-exp: its layout is not ours.
class CudnnAttention {
 public:
  /// @param backward builds the gradient's graph too; `deterministic` as cuDNN understands it
  CudnnAttention(run::Gpu& gpu, const CudnnAttentionSizes& sizes, bool backward,
                 bool deterministic);
  ~CudnnAttention();

  void forward(execution::Queue& queue, const void* q, const void* k, const void* v, void* o);
  /// After a forward on the same inputs.
  void backward(execution::Queue& queue, const void* q, const void* k, const void* v, const void* o,
                const void* d_o, void* dq, void* dk, void* dv);

  /// "cuDNN 9.14.0, frontend 1.16.0".
  static std::string version();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stowage::drivers::bench
