#include "kernels/rope/rope.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/rope/rope_launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

template <class S>
int Rope::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return rope::launch(rope::Rotation<S>{.tokens = tokens,
                                        .heads = heads,
                                        .kv_heads = kv_heads,
                                        .head_dim = head_dim,
                                        .rotary_dim = rotary_dim,
                                        .in = o.in,
                                        .cu_seqlens = o.cu_seqlens,
                                        .seq_idx = o.seq_idx,
                                        .positions = o.positions,
                                        .out = o.out,
                                        .first_token = first_token,
                                        .frequencies = frequencies,
                                        .direction = backward ? -1.0 : 1.0},
                      stream);
}

Cost Rope::cost() const {
  return {3.0 * static_cast<double>(tokens * (heads + kv_heads) * rotary_dim),
          2 * bytes(tokens * width(), storage) + bytes(tokens, Dtype::int32)};
}

STOWAGE_OPERATOR_RUN(Rope)

}  // namespace stowage::kernels
