#pragma once

#include <cstddef>
#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// What a fused projection has: H query heads, K key heads and K value heads of width P.
struct HeadSizes {
  std::int64_t heads, kv_heads, head_dim;

  constexpr std::int64_t all() const { return heads + 2 * kv_heads; }
  constexpr std::int64_t width() const { return all() * head_dim; }
};

/// RMSNorm of each query and key head of a fused projection (Qwen3, arXiv 2505.09388 section 2;
/// after arXiv 2302.05442 section 2):
///
///   y = x * rstd * w,  rstd = 1 / sqrt(mean(x^2) + eps),  a mean for each head of each token
///
/// with w = q_weight (P) for queries and k_weight (P) for keys. in, out (n, (H + 2K) P); values are
/// copied; all of one storage dtype. `out` may be `in`.
void head_rmsnorm_forward(execution::Queue& queue, const execution::View& in,
                          const execution::View& q_weight, const execution::View& k_weight,
                          const execution::View& out, const HeadSizes& sizes, double eps);

struct HeadRmsnormBackwardOperands {
  execution::View dout;                  ///< (n, (H + 2K) P)
  execution::View in;                    ///< of forward
  execution::View q_weight, k_weight;    ///< (P)
  execution::View din;                   ///< (n, (H + 2K) P); may be dout
  execution::View dq_weight, dk_weight;  ///< (P) in the accumulation dtype
  execution::View workspace;
};

/// Gradient of the above; rstd is computed again from `in`. With `accumulate` the gradients of the
/// weights are added to.
void head_rmsnorm_backward(execution::Queue& queue, const HeadRmsnormBackwardOperands& operands,
                           const HeadSizes& sizes, double eps, bool accumulate);

/// Room for partial sums of the weights' gradients.
std::size_t head_rmsnorm_backward_workspace_bytes(std::int64_t tokens, const HeadSizes& sizes,
                                                  execution::Dtype storage);

execution::Cost head_rmsnorm_forward_cost(std::int64_t tokens, const HeadSizes& sizes,
                                          execution::Dtype storage);
execution::Cost head_rmsnorm_backward_cost(std::int64_t tokens, const HeadSizes& sizes,
                                           execution::Dtype storage);

/// Host references.
template <class S>
void head_rmsnorm_forward_ref(std::int64_t tokens, const S* in, const S* q_weight,
                              const S* k_weight, S* out, const HeadSizes& sizes, double eps);
template <class S>
void head_rmsnorm_backward_ref(std::int64_t tokens, const S* dout, const S* in, const S* q_weight,
                               const S* k_weight, S* din, execution::Accumulation<S>* dq_weight,
                               execution::Accumulation<S>* dk_weight,
                               execution::Accumulation<S>* workspace, const HeadSizes& sizes,
                               double eps, bool accumulate);

}  // namespace stowage::kernels
