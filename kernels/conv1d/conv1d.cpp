#include "kernels/conv1d/conv1d.hpp"

#include <algorithm>

#include "kernels/conv1d/conv1d_cuda_dispatch.hpp"
#include "kernels/conv1d/conv1d_layout.hpp"
#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/partials.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

/// The width of a filter (C, W), checked.
std::int64_t width_of(const Operands& operands, const View& w, Dtype storage,
                      std::int64_t channels) {
  operands.rank(w, "w", 2);
  const std::int64_t width = w.extent(1);
  operands.require(width >= kConv1dMinWidth && width <= kConv1dMaxWidth,
                   "w has neither 2, 3 nor 4 taps");
  operands.check(w, "w", storage, {channels, width});
  return width;
}

void check_halo(const Operands& operands, const Conv1dHalo& halo, Dtype storage,
                std::int64_t channels) {
  operands.check_optional(halo.rows, "halo", storage, {kConv1dHalo, channels});
  operands.check_optional(halo.gradient, "halo gradient", storage, {kConv1dHalo, channels});
}

}  // namespace

void conv1d_silu_forward(Queue& queue, const Columns& x, const View& w, const View& b,
                         const View& seq_idx, const View& y, const Conv1dHalo& halo) {
  const Operands operands("conv1d_silu_forward");
  const Dtype storage = operands.storage(y, "y");
  operands.rank(y, "y", 2);
  const std::int64_t n = y.extent(0), channels = y.extent(1);
  operands.check(x, "x", storage, n, channels);
  const std::int64_t width = width_of(operands, w, storage, channels);
  operands.check(b, "b", storage, {channels});
  operands.check(seq_idx, "seq_idx", Dtype::int32, {n});
  check_halo(operands, halo, storage, channels);
  const ColumnsAddress from(x);
  const Address weight(w), bias(b), documents(seq_idx), to(y), before(halo.rows);
  run(
      queue, "conv1d_silu_forward", storage,
      [=]<class S>() {
        conv1d_silu_forward_ref(from.as<const S>(), weight.as<const S>(), bias.as<const S>(),
                                documents.as<const std::int32_t>(), to.as<S>(),
                                before.as<const S>(), width);
      },
      [&]<class S>(void* stream) {
        return detail::conv1d_forward_cuda<S>(
            from.as<const S>(), weight.as<const S>(), bias.as<const S>(),
            documents.as<const std::int32_t>(), to.as<S>(), before.as<const S>(),
            static_cast<int>(width), stream);
      });
}

void conv1d_silu_backward(Queue& queue, const Conv1dBackwardOperands& views, bool accumulate,
                          const Conv1dHalo& halo) {
  const Operands operands("conv1d_silu_backward");
  const Dtype storage = operands.storage(views.dy, "dy");
  operands.rank(views.dy, "dy", 2);
  const std::int64_t n = views.dy.extent(0), channels = views.dy.extent(1);
  operands.check(views.x, "x", storage, n, channels);
  const std::int64_t width = width_of(operands, views.w, storage, channels);
  operands.check(views.b, "b", storage, {channels});
  operands.check(views.seq_idx, "seq_idx", Dtype::int32, {n});
  check_halo(operands, halo, storage, channels);
  operands.check(views.dx, "dx", storage, n, channels);
  operands.check(views.dw, "dw", execution::accumulation(storage), {channels, width});
  operands.check(views.db, "db", execution::accumulation(storage), {channels});
  operands.workspace(views.workspace, conv1d_silu_backward_workspace_bytes(n, channels, storage));
  const ColumnsAddress from(views.x), to(views.dx);
  const Address upstream(views.dy), weight(views.w), bias(views.b), documents(views.seq_idx);
  const Address dweight(views.dw), dbias(views.db), room(views.workspace);
  const Address before(halo.rows), dbefore(halo.gradient);
  run(
      queue, "conv1d_silu_backward", storage,
      [=]<class S>() {
        using A = Accumulation<S>;
        conv1d_silu_backward_ref(upstream.as<const S>(), from.as<const S>(), weight.as<const S>(),
                                 bias.as<const S>(), documents.as<const std::int32_t>(), to.as<S>(),
                                 dweight.as<A>(), dbias.as<A>(), room.as<A>(), accumulate,
                                 before.as<const S>(), dbefore.as<S>(), width);
      },
      [&]<class S>(void* stream) {
        return detail::conv1d_backward_cuda<S>(
            {from.as<const S>(), upstream.as<const S>(), weight.as<const S>(), bias.as<const S>(),
             documents.as<const std::int32_t>(), to.as<S>(), dweight.as<float>(), dbias.as<float>(),
             room.as<void>(), accumulate, before.as<const S>(), dbefore.as<S>(),
             static_cast<int>(width)},
            stream);
      });
}

std::size_t conv1d_silu_backward_workspace_bytes(std::int64_t tokens, std::int64_t channels,
                                                 Dtype storage) {
  const std::size_t host =
      static_cast<std::size_t>(partial_count(tokens) * (kConv1dMaxWidth + 1) * channels) *
      execution::size_bytes(execution::accumulation(storage));
  return std::max(host, detail::conv1d_cuda_backward_bytes(tokens, channels, storage));
}

// Flops: a multiply and an add for each tap, and about 5 for SiLU, 10 for its derivative.
Cost conv1d_silu_forward_cost(std::int64_t tokens, std::int64_t channels, Dtype storage,
                              std::int64_t width) {
  return {(2.0 * static_cast<double>(width) + 5) * static_cast<double>(tokens * channels),
          2 * bytes(tokens * channels, storage) + bytes((width + 1) * channels, storage) +
              bytes(tokens, Dtype::int32)};
}

Cost conv1d_silu_backward_cost(std::int64_t tokens, std::int64_t channels, Dtype storage,
                               std::int64_t width) {
  return {(6.0 * static_cast<double>(width) + 10) * static_cast<double>(tokens * channels),
          3 * bytes(tokens * channels, storage) + bytes((width + 1) * channels, storage) +
              bytes((width + 1) * channels, execution::accumulation(storage)) +
              bytes(tokens, Dtype::int32)};
}

}  // namespace stowage::kernels
