#include "kernels/decode/attention_step.hpp"

#include "kernels/cost.hpp"
#include "kernels/decode/decode_launch.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Cost;

template <class S>
int AttentionStep::launch(const Operands<Pointers<S>>& o, void* stream) const {
  STOWAGE_ASSERT(shape.head_dim <= decode::kMostHeadDim, "head dimension {} is not up to {}",
                 shape.head_dim, decode::kMostHeadDim);
  return decode::launch(decode::Attention<S>{.sequences = sequences,
                                             .window = shape.window,
                                             .heads = static_cast<int>(shape.heads),
                                             .kv_heads = static_cast<int>(shape.kv_heads),
                                             .head_dim = static_cast<int>(shape.head_dim),
                                             .scale = static_cast<float>(shape.scale),
                                             .qkv = o.qkv,
                                             .positions = o.positions,
                                             .keys = o.keys,
                                             .values = o.values,
                                             .o = o.o,
                                             .workspace = o.workspace},
                        stream);
}

std::size_t AttentionStep::workspace_bytes() const {
  return static_cast<std::size_t>(sequences * shape.heads * decode::parts(shape.window) *
                                  (shape.head_dim + 2)) *
         sizeof(float);
}

std::string AttentionStep::fault() const {
  if (shape.kv_heads <= 0 || shape.heads % shape.kv_heads != 0)
    return "heads is not a multiple of kv_heads";
  if (shape.heads <= 0 || shape.head_dim <= 0) return "no heads, or none of their columns";
  if (shape.window <= 0) return "no positions";
  return shape.scale > 0 ? "" : "scale is not positive";
}

// Of caches that are full.
Cost AttentionStep::cost() const {
  const std::int64_t cached = sequences * shape.kv_heads * shape.window * shape.head_dim;
  return {2 * product_flops(sequences * shape.heads, shape.window, shape.head_dim),
          bytes(2 * cached + sequences * (shape.width() + shape.heads * shape.head_dim), storage)};
}

STOWAGE_OPERATOR_RUN(AttentionStep)

}  // namespace stowage::kernels
