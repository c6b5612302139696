#include "kernels/conv1d/conv1d.hpp"

#include "kernels/cost.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/partials.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

void conv1d_silu_forward(Queue& queue, const Columns& x, const View& w, const View& b,
                         const View& seq_idx, const View& y) {
  const Operands operands("conv1d_silu_forward");
  const Dtype storage = operands.storage(y, "y");
  operands.rank(y, "y", 2);
  const std::int64_t n = y.extent(0), channels = y.extent(1);
  operands.check(x, "x", storage, n, channels);
  operands.check(w, "w", storage, {channels, kConv1dWidth});
  operands.check(b, "b", storage, {channels});
  operands.check(seq_idx, "seq_idx", Dtype::int32, {n});
  run(queue, "conv1d_silu_forward", storage,
      [x = ColumnsAddress(x), w = Address(w), b = Address(b), seq_idx = Address(seq_idx),
       y = Address(y)]<class S>() {
        conv1d_silu_forward_ref(x.as<const S>(), w.as<const S>(), b.as<const S>(),
                                seq_idx.as<const std::int32_t>(), y.as<S>());
      });
}

void conv1d_silu_backward(Queue& queue, const View& dy, const Columns& x, const View& w,
                          const View& b, const View& seq_idx, const Columns& dx, const View& dw,
                          const View& db, const View& workspace, bool accumulate) {
  const Operands operands("conv1d_silu_backward");
  const Dtype storage = operands.storage(dy, "dy");
  operands.rank(dy, "dy", 2);
  const std::int64_t n = dy.extent(0), channels = dy.extent(1);
  operands.check(x, "x", storage, n, channels);
  operands.check(w, "w", storage, {channels, kConv1dWidth});
  operands.check(b, "b", storage, {channels});
  operands.check(seq_idx, "seq_idx", Dtype::int32, {n});
  operands.check(dx, "dx", storage, n, channels);
  operands.check(dw, "dw", execution::accumulation(storage), {channels, kConv1dWidth});
  operands.check(db, "db", execution::accumulation(storage), {channels});
  operands.workspace(workspace, conv1d_silu_backward_workspace_bytes(n, channels, storage));
  run(queue, "conv1d_silu_backward", storage,
      [=, dy = Address(dy), x = ColumnsAddress(x), w = Address(w), b = Address(b),
       seq_idx = Address(seq_idx), dx = ColumnsAddress(dx), dw = Address(dw), db = Address(db),
       partials = Address(workspace)]<class S>() {
        using A = Accumulation<S>;
        conv1d_silu_backward_ref(dy.as<const S>(), x.as<const S>(), w.as<const S>(),
                                 b.as<const S>(), seq_idx.as<const std::int32_t>(), dx.as<S>(),
                                 dw.as<A>(), db.as<A>(), partials.as<A>(), accumulate);
      });
}

std::size_t conv1d_silu_backward_workspace_bytes(std::int64_t tokens, std::int64_t channels,
                                                 Dtype storage) {
  return static_cast<std::size_t>(partial_count(tokens) * (kConv1dWidth + 1) * channels) *
         execution::size_bytes(execution::accumulation(storage));
}

// Flops: a multiply and an add for each tap, and about 5 for SiLU, 10 for its derivative.
Cost conv1d_silu_forward_cost(std::int64_t tokens, std::int64_t channels, Dtype storage) {
  return {(2.0 * kConv1dWidth + 5) * static_cast<double>(tokens * channels),
          2 * bytes(tokens * channels, storage) + bytes((kConv1dWidth + 1) * channels, storage) +
              bytes(tokens, Dtype::int32)};
}

Cost conv1d_silu_backward_cost(std::int64_t tokens, std::int64_t channels, Dtype storage) {
  return {(6.0 * kConv1dWidth + 10) * static_cast<double>(tokens * channels),
          3 * bytes(tokens * channels, storage) + bytes((kConv1dWidth + 1) * channels, storage) +
              bytes((kConv1dWidth + 1) * channels, execution::accumulation(storage)) +
              bytes(tokens, Dtype::int32)};
}

}  // namespace stowage::kernels
