#include "kernels/norm/head_rmsnorm.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/norm/norm_launch.hpp"
#include "kernels/partials.hpp"

namespace stowage::kernels {

using execution::Cost;

template <class S>
int HeadRmsnormForward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return norm::launch(norm::HeadForward<S>{.tokens = tokens,
                                           .sizes = sizes,
                                           .in = o.in,
                                           .q_weight = o.q_weight,
                                           .k_weight = o.k_weight,
                                           .out = o.out,
                                           .eps = static_cast<float>(eps),
                                           .weight_offset = zero_centred ? 1.0F : 0.0F},
                      stream);
}

Cost HeadRmsnormForward::cost() const {
  const std::int64_t normed = tokens * (sizes.heads + sizes.kv_heads) * sizes.head_dim;
  return {4.0 * static_cast<double>(normed), 2 * bytes(tokens * sizes.width(), storage)};
}

template <class S>
int HeadRmsnormBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return norm::launch(norm::HeadBackward<S>{.tokens = tokens,
                                            .sizes = sizes,
                                            .dout = o.dout,
                                            .in = o.in,
                                            .q_weight = o.q_weight,
                                            .k_weight = o.k_weight,
                                            .din = o.din,
                                            .dq_weight = o.dq_weight,
                                            .dk_weight = o.dk_weight,
                                            .partials = o.workspace,
                                            .eps = static_cast<float>(eps),
                                            .accumulate = accumulate,
                                            .weight_offset = zero_centred ? 1.0F : 0.0F},
                      stream);
}

std::size_t HeadRmsnormBackward::workspace_bytes() const {
  if (tokens == 0) return 0;
  const std::int64_t rows = tokens * std::max(sizes.heads, sizes.kv_heads);
  const std::int64_t partials = std::max(partial_count(rows), 2 * norm::kPartials);
  return static_cast<std::size_t>(partials * sizes.head_dim) *
         execution::size_bytes(execution::accumulation(storage));
}

Cost HeadRmsnormBackward::cost() const {
  const std::int64_t normed = tokens * (sizes.heads + sizes.kv_heads) * sizes.head_dim;
  return {10.0 * static_cast<double>(normed),
          2 * bytes(tokens * sizes.width(), storage) + bytes(normed, storage)};
}

STOWAGE_OPERATOR_RUN(HeadRmsnormForward)
STOWAGE_OPERATOR_RUN(HeadRmsnormBackward)

}  // namespace stowage::kernels
