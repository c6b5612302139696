#include "kernels/norm/rmsnorm.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/norm/norm_launch.hpp"
#include "kernels/partials.hpp"

namespace stowage::kernels {

using execution::Cost;

template <class S>
int AddRmsnormForward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return norm::launch(norm::RmsnormForward<S>{.rows = rows,
                                              .width = width,
                                              .x = o.x,
                                              .delta = o.delta,
                                              .w = o.w,
                                              .sum = o.sum,
                                              .y = o.y,
                                              .rstd = o.rstd,
                                              .eps = static_cast<float>(eps),
                                              .amax = o.amax,
                                              .weight_offset = zero_centred ? 1.0F : 0.0F},
                      stream);
}

Cost AddRmsnormForward::cost() const {
  const double passes_over_rows = residual ? 4 : 2;
  return {4.0 * static_cast<double>(rows * width),
          passes_over_rows * bytes(rows * width, storage) + bytes(width, storage) +
              bytes(rows, execution::accumulation(storage))};
}

template <class S>
int RmsnormBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return norm::launch(norm::RmsnormBackward<S>{.rows = rows,
                                               .width = width,
                                               .dy = o.dy,
                                               .x = o.x,
                                               .w = o.w,
                                               .rstd = o.rstd,
                                               .dresidual = o.dresidual,
                                               .dx = o.dx,
                                               .dw = o.dw,
                                               .partials = o.workspace,
                                               .accumulate = accumulate,
                                               .amax = o.amax,
                                               .weight_offset = zero_centred ? 1.0F : 0.0F},
                      stream);
}

std::size_t RmsnormBackward::workspace_bytes() const {
  const std::int64_t partials = std::max(partial_count(rows), std::min(rows, norm::kPartials));
  return static_cast<std::size_t>(partials * width) *
         execution::size_bytes(execution::accumulation(storage));
}

Cost RmsnormBackward::cost() const {
  const double passes_over_rows = residual ? 4 : 3;
  return {8.0 * static_cast<double>(rows * width),
          passes_over_rows * bytes(rows * width, storage) + bytes(width, storage) +
              bytes(width + rows, execution::accumulation(storage)),
          0, 0, 1};
}

STOWAGE_OPERATOR_RUN(AddRmsnormForward)
STOWAGE_OPERATOR_RUN(RmsnormBackward)

}  // namespace stowage::kernels
