#include "kernels/norm/gated_rmsnorm.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/norm/norm_launch.hpp"
#include "kernels/partials.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

/// GroupShares in memory.
struct SharesAddress {
  SharesAddress(const Operands& operands, const GroupShares& shares, std::int64_t n,
                std::int64_t groups, Dtype storage, bool backward)
      : squares(shares.squares),
        projections(shares.projections),
        rows(n),
        first(shares.first),
        count(shares.count) {
    if (count == 1) return;
    operands.require(groups == 1, "a rank has several groups and others have parts of them");
    operands.rank(shares.squares, "squares", 2);
    const std::int64_t parts = shares.squares.extent(0);
    operands.require(first >= 0 && count > 1 && first + count <= parts,
                     fmt::format("parts {} to {} are not among {}", first, first + count, parts));
    const Dtype accum = execution::accumulation(storage);
    operands.check(shares.squares, "squares", accum, {parts, rows});
    if (backward) operands.check(shares.projections, "projections", accum, {parts, rows});
  }

  template <class A>
  GroupSharePointers<A> as() const {
    if (count == 1) return {};
    return {squares.as<const A>(), projections.as<const A>(), rows, first, count};
  }

  Address squares, projections;
  std::int64_t rows;
  int first, count;
};

}  // namespace

void gated_rmsnorm_forward(Queue& queue, const View& y, const Columns& z, const View& w,
                           const View& out, std::int64_t groups, double eps,
                           const GroupShares& shares) {
  const Operands operands("gated_rmsnorm_forward");
  const Dtype storage = operands.storage(y, "y");
  operands.rank(y, "y", 2);
  const std::int64_t n = y.extent(0), width = y.extent(1);
  operands.require(groups > 0 && width % groups == 0, "d_inner is not a multiple of groups");
  operands.check(z, "z", storage, n, width);
  operands.check(w, "w", storage, {width});
  operands.check(out, "out", storage, {n, width});
  const SharesAddress parts(operands, shares, n, groups, storage, false);
  run(
      queue, "gated_rmsnorm_forward", storage,
      [=, y = Address(y), z = ColumnsAddress(z), w = Address(w), out = Address(out)]<class S>() {
        gated_rmsnorm_forward_ref(y.as<const S>(), z.as<const S>(), w.as<const S>(), out.as<S>(),
                                  groups, eps, parts.as<Accumulation<S>>());
      },
      [&]<class S>(void* stream) {
        return norm::launch(norm::GatedForward<S>{.rows = n,
                                                  .width = width,
                                                  .groups = groups,
                                                  .y = y.as<const S>(),
                                                  .z = z.view.as<const S>() + z.first,
                                                  .z_stride = z.width(),
                                                  .w = w.as<const S>(),
                                                  .out = out.as<S>(),
                                                  .eps = static_cast<float>(eps),
                                                  .shares = parts.as<float>()},
                            stream);
      });
}

void gated_rmsnorm_backward(Queue& queue, const View& dout, const View& y, const Columns& z,
                            const View& w, const View& dy, const Columns& dz, const View& dw,
                            const View& workspace, std::int64_t groups, double eps, bool accumulate,
                            const GroupShares& shares) {
  const Operands operands("gated_rmsnorm_backward");
  const Dtype storage = operands.storage(y, "y");
  operands.rank(y, "y", 2);
  const std::int64_t n = y.extent(0), width = y.extent(1);
  operands.require(groups > 0 && width % groups == 0, "d_inner is not a multiple of groups");
  operands.check(dout, "dout", storage, {n, width});
  operands.check(z, "z", storage, n, width);
  operands.check(w, "w", storage, {width});
  operands.check(dy, "dy", storage, {n, width});
  operands.check(dz, "dz", storage, n, width);
  operands.check(dw, "dw", execution::accumulation(storage), {width});
  operands.workspace(workspace, gated_rmsnorm_backward_workspace_bytes(n, width, storage));
  const SharesAddress parts(operands, shares, n, groups, storage, true);
  run(
      queue, "gated_rmsnorm_backward", storage,
      [=, dout = Address(dout), y = Address(y), z = ColumnsAddress(z), w = Address(w),
       dy = Address(dy), dz = ColumnsAddress(dz), dw = Address(dw),
       partials = Address(workspace)]<class S>() {
        using A = Accumulation<S>;
        gated_rmsnorm_backward_ref(dout.as<const S>(), y.as<const S>(), z.as<const S>(),
                                   w.as<const S>(), dy.as<S>(), dz.as<S>(), dw.as<A>(),
                                   partials.as<A>(), groups, eps, accumulate, parts.as<A>());
      },
      [&]<class S>(void* stream) {
        return norm::launch(
            norm::GatedBackward<S>{.rows = n,
                                   .width = width,
                                   .groups = groups,
                                   .dout = dout.as<const S>(),
                                   .y = y.as<const S>(),
                                   .z = z.view.as<const S>() + z.first,
                                   .z_stride = z.width(),
                                   .w = w.as<const S>(),
                                   .dy = dy.as<S>(),
                                   .dz = dz.view.as<S>() + dz.first,
                                   .dz_stride = dz.width(),
                                   .dw = dw.as<float>(),
                                   .partials = workspace ? workspace.as<float>() : nullptr,
                                   .eps = static_cast<float>(eps),
                                   .accumulate = accumulate,
                                   .shares = parts.as<float>()},
            stream);
      });
}

std::size_t gated_rmsnorm_backward_workspace_bytes(std::int64_t rows, std::int64_t width,
                                                   Dtype storage) {
  const std::int64_t partials = std::max(partial_count(rows), std::min(rows, norm::kPartials));
  return static_cast<std::size_t>(partials * width) *
         execution::size_bytes(execution::accumulation(storage));
}

Cost gated_rmsnorm_forward_cost(std::int64_t rows, std::int64_t width, Dtype storage) {
  return {8.0 * static_cast<double>(rows * width),
          3 * bytes(rows * width, storage) + bytes(width, storage)};
}

Cost gated_rmsnorm_backward_cost(std::int64_t rows, std::int64_t width, Dtype storage) {
  return {20.0 * static_cast<double>(rows * width),
          5 * bytes(rows * width, storage) + bytes(width, storage) +
              bytes(width, execution::accumulation(storage))};
}

}  // namespace stowage::kernels
