#include "kernels/rope/rope.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/rope/rope_launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

Dtype check(const Operands& operands, const View& in, const View& cu_seqlens, const View& seq_idx,
            const View& out, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  const Dtype storage = operands.storage(in, "in");
  operands.require(head_dim % 2 == 0, "head_dim is odd");
  operands.rank(in, "in", 2);
  operands.check(in, "in", storage, {in.extent(0), (heads + 2 * kv_heads) * head_dim});
  operands.same(out, "out", in);
  operands.rank(cu_seqlens, "cu_seqlens", 1);
  operands.check(cu_seqlens, "cu_seqlens", Dtype::int32, {cu_seqlens.extent(0)});
  operands.check(seq_idx, "seq_idx", Dtype::int32, {in.extent(0)});
  return storage;
}

/// Forward by angles that grow with the position, backward by their negatives.
enum class Direction : std::int8_t { forward = 1, backward = -1 };

void rotate(Queue& queue, Direction direction, const View& in, const View& cu_seqlens,
            const View& seq_idx, const View& out, std::int64_t heads, std::int64_t kv_heads,
            std::int64_t head_dim, const RopeFrequencies& frequencies, std::int64_t first_token) {
  const char* name = direction == Direction::forward ? "rope_forward" : "rope_backward";
  const Operands operands(name);
  const Dtype storage = check(operands, in, cu_seqlens, seq_idx, out, heads, kv_heads, head_dim);
  run(
      queue, name, storage,
      [=, n = in.extent(0), in = Address(in), cu_seqlens = Address(cu_seqlens),
       seq_idx = Address(seq_idx), out = Address(out)]<class S>() {
        const auto reference =
            direction == Direction::forward ? rope_forward_ref<S> : rope_backward_ref<S>;
        reference(in.as<const S>(), cu_seqlens.as<const std::int32_t>(),
                  seq_idx.as<const std::int32_t>(), out.as<S>(), n, heads, kv_heads, head_dim,
                  frequencies, first_token);
      },
      [&]<class S>(void* stream) {
        return rope::launch(rope::Rotation<S>{.tokens = in.extent(0),
                                              .heads = heads,
                                              .kv_heads = kv_heads,
                                              .head_dim = head_dim,
                                              .in = in.as<const S>(),
                                              .cu_seqlens = cu_seqlens.as<const std::int32_t>(),
                                              .seq_idx = seq_idx.as<const std::int32_t>(),
                                              .out = out.as<S>(),
                                              .first_token = first_token,
                                              .frequencies = frequencies,
                                              .direction = static_cast<double>(direction)},
                            stream);
      });
}

}  // namespace

void rope_forward(Queue& queue, const View& in, const View& cu_seqlens, const View& seq_idx,
                  const View& out, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                  const RopeFrequencies& frequencies, std::int64_t first_token) {
  rotate(queue, Direction::forward, in, cu_seqlens, seq_idx, out, heads, kv_heads, head_dim,
         frequencies, first_token);
}

void rope_backward(Queue& queue, const View& in, const View& cu_seqlens, const View& seq_idx,
                   const View& out, std::int64_t heads, std::int64_t kv_heads,
                   std::int64_t head_dim, const RopeFrequencies& frequencies,
                   std::int64_t first_token) {
  rotate(queue, Direction::backward, in, cu_seqlens, seq_idx, out, heads, kv_heads, head_dim,
         frequencies, first_token);
}

Cost rope_cost(std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads,
               std::int64_t head_dim, Dtype storage) {
  return {
      3.0 * static_cast<double>(tokens * (heads + kv_heads) * head_dim),
      2 * bytes(tokens * (heads + 2 * kv_heads) * head_dim, storage) + bytes(tokens, Dtype::int32)};
}

}  // namespace stowage::kernels
