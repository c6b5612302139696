#include "kernels/norm/rmsnorm.hpp"

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

void add_rmsnorm_forward(Queue& queue, const View& x, const View& delta, const View& w,
                         const View& sum, const View& y, const View& rstd, double eps) {
  const Operands operands("add_rmsnorm_forward");
  const Dtype storage = operands.storage(x, "x");
  operands.rank(x, "x", 2);
  const std::int64_t n = x.extent(0), width = x.extent(1);
  operands.check_optional(delta, "delta", storage, {n, width});
  operands.check(w, "w", storage, {width});
  operands.check_optional(sum, "sum", storage, {n, width});
  operands.require(sum || !delta, "sum is absent although there is a delta");
  operands.check(y, "y", storage, {n, width});
  operands.check(rstd, "rstd", execution::accumulation(storage), {n});
  run(
      queue, "add_rmsnorm_forward", storage,
      [=, x = Address(x), delta = Address(delta), w = Address(w), sum = Address(sum),
       y = Address(y), rstd = Address(rstd)]<class S>() {
        add_rmsnorm_forward_ref(n, width, x.as<const S>(), delta.as<const S>(), w.as<const S>(),
                                sum.as<S>(), y.as<S>(), rstd.as<Accumulation<S>>(), eps);
      },
      [&]<class S>(void* stream) {
        return norm::launch(norm::RmsnormForward<S>{.rows = n,
                                                    .width = width,
                                                    .x = x.as<const S>(),
                                                    .delta = delta ? delta.as<const S>() : nullptr,
                                                    .w = w.as<const S>(),
                                                    .sum = sum ? sum.as<S>() : nullptr,
                                                    .y = y.as<S>(),
                                                    .rstd = rstd.as<float>(),
                                                    .eps = static_cast<float>(eps)},
                            stream);
      });
}

void rmsnorm_backward(Queue& queue, const View& dy, const View& x, const View& w, const View& rstd,
                      const View& dresidual, const View& dx, const View& dw, const View& workspace,
                      bool accumulate) {
  const Operands operands("rmsnorm_backward");
  const Dtype storage = operands.storage(x, "x");
  operands.rank(x, "x", 2);
  const std::int64_t n = x.extent(0), width = x.extent(1);
  const Dtype accumulation = execution::accumulation(storage);
  operands.check(dy, "dy", storage, {n, width});
  operands.check(w, "w", storage, {width});
  operands.check(rstd, "rstd", accumulation, {n});
  operands.check_optional(dresidual, "dresidual", storage, {n, width});
  operands.check(dx, "dx", storage, {n, width});
  operands.check(dw, "dw", accumulation, {width});
  operands.workspace(workspace, rmsnorm_backward_workspace_bytes(n, width, storage));
  run(
      queue, "rmsnorm_backward", storage,
      [=, dy = Address(dy), x = Address(x), w = Address(w), rstd = Address(rstd),
       dresidual = Address(dresidual), dx = Address(dx), dw = Address(dw),
       partials = Address(workspace)]<class S>() {
        using A = Accumulation<S>;
        rmsnorm_backward_ref(n, width, dy.as<const S>(), x.as<const S>(), w.as<const S>(),
                             rstd.as<const A>(), dresidual.as<const S>(), dx.as<S>(), dw.as<A>(),
                             partials.as<A>(), accumulate);
      },
      [&]<class S>(void* stream) {
        return norm::launch(
            norm::RmsnormBackward<S>{.rows = n,
                                     .width = width,
                                     .dy = dy.as<const S>(),
                                     .x = x.as<const S>(),
                                     .w = w.as<const S>(),
                                     .rstd = rstd.as<const float>(),
                                     .dresidual = dresidual ? dresidual.as<const S>() : nullptr,
                                     .dx = dx.as<S>(),
                                     .dw = dw.as<float>(),
                                     .partials = workspace ? workspace.as<float>() : nullptr,
                                     .accumulate = accumulate},
            stream);
      });
}

std::size_t rmsnorm_backward_workspace_bytes(std::int64_t rows, std::int64_t width, Dtype storage) {
  const std::int64_t partials = std::max(partial_count(rows), std::min(rows, norm::kPartials));
  return static_cast<std::size_t>(partials * width) *
         execution::size_bytes(execution::accumulation(storage));
}

Cost add_rmsnorm_forward_cost(std::int64_t rows, std::int64_t width, Dtype storage, bool residual) {
  const double passes_over_rows = residual ? 4 : 2;
  return {4.0 * static_cast<double>(rows * width),
          passes_over_rows * bytes(rows * width, storage) + bytes(width, storage) +
              bytes(rows, execution::accumulation(storage))};
}

Cost rmsnorm_backward_cost(std::int64_t rows, std::int64_t width, Dtype storage, bool residual) {
  const double passes_over_rows = residual ? 4 : 3;
  return {8.0 * static_cast<double>(rows * width),
          passes_over_rows * bytes(rows * width, storage) + bytes(width, storage) +
              bytes(width + rows, execution::accumulation(storage)),
          0, 0, 1};
}

}  // namespace stowage::kernels
