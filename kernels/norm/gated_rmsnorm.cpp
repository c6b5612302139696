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

void gated_rmsnorm_forward(Queue& queue, const View& y, const Columns& z, const View& w,
                           const View& out, std::int64_t groups, double eps) {
  const Operands operands("gated_rmsnorm_forward");
  const Dtype storage = operands.storage(y, "y");
  operands.rank(y, "y", 2);
  const std::int64_t n = y.extent(0), width = y.extent(1);
  operands.require(groups > 0 && width % groups == 0, "d_inner is not a multiple of groups");
  operands.check(z, "z", storage, n, width);
  operands.check(w, "w", storage, {width});
  operands.check(out, "out", storage, {n, width});
  run(
      queue, "gated_rmsnorm_forward", storage,
      [=, y = Address(y), z = ColumnsAddress(z), w = Address(w), out = Address(out)]<class S>() {
        gated_rmsnorm_forward_ref(y.as<const S>(), z.as<const S>(), w.as<const S>(), out.as<S>(),
                                  groups, eps);
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
                                                  .eps = static_cast<float>(eps)},
                            stream);
      });
}

void gated_rmsnorm_backward(Queue& queue, const View& dout, const View& y, const Columns& z,
                            const View& w, const View& dy, const Columns& dz, const View& dw,
                            const View& workspace, std::int64_t groups, double eps,
                            bool accumulate) {
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
  run(
      queue, "gated_rmsnorm_backward", storage,
      [=, dout = Address(dout), y = Address(y), z = ColumnsAddress(z), w = Address(w),
       dy = Address(dy), dz = ColumnsAddress(dz), dw = Address(dw),
       partials = Address(workspace)]<class S>() {
        using A = Accumulation<S>;
        gated_rmsnorm_backward_ref(dout.as<const S>(), y.as<const S>(), z.as<const S>(),
                                   w.as<const S>(), dy.as<S>(), dz.as<S>(), dw.as<A>(),
                                   partials.as<A>(), groups, eps, accumulate);
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
                                   .accumulate = accumulate},
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
