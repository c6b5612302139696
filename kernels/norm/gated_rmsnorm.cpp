#include "kernels/norm/gated_rmsnorm.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/norm/norm_launch.hpp"
#include "kernels/partials.hpp"

namespace stowage::kernels {

using execution::Cost;

namespace {

std::string fault_of(std::int64_t width, std::int64_t groups, const GroupShares& shares) {
  if (groups <= 0 || width % groups != 0) return "d_inner is not a multiple of groups";
  if (!shares.shared()) return {};
  if (groups != 1) return "a rank has several groups and others have parts of them";
  const int end = shares.first + shares.count;
  if (shares.first >= 0 && end <= shares.parts) return {};
  return fmt::format("parts {} to {} are not among {}", shares.first, end, shares.parts);
}

}  // namespace

template <class S>
int GatedRmsnormForward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return norm::launch(norm::GatedForward<S>{.rows = rows,
                                            .width = width,
                                            .groups = groups,
                                            .y = o.y,
                                            .z = o.z.data,
                                            .z_stride = o.z.stride,
                                            .w = o.w,
                                            .out = o.out,
                                            .eps = static_cast<float>(eps),
                                            .shares = shares.pointers(rows, o.squares),
                                            .amax = o.amax},
                      stream);
}

std::string GatedRmsnormForward::fault() const { return fault_of(width, groups, shares); }

Cost GatedRmsnormForward::cost() const {
  return {8.0 * static_cast<double>(rows * width),
          3 * bytes(rows * width, storage) + bytes(width, storage)};
}

template <class S>
int GatedRmsnormBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return norm::launch(
      norm::GatedBackward<S>{.rows = rows,
                             .width = width,
                             .groups = groups,
                             .dout = o.dout,
                             .y = o.y,
                             .z = o.z.data,
                             .z_stride = o.z.stride,
                             .w = o.w,
                             .dy = o.dy,
                             .dz = o.dz.data,
                             .dz_stride = o.dz.stride,
                             .dw = o.dw,
                             .partials = o.workspace,
                             .eps = static_cast<float>(eps),
                             .accumulate = accumulate,
                             .shares = shares.pointers(rows, o.squares, o.projections),
                             .amax = o.amax},
      stream);
}

std::string GatedRmsnormBackward::fault() const { return fault_of(width, groups, shares); }

std::size_t GatedRmsnormBackward::workspace_bytes() const {
  const std::int64_t partials = std::max(partial_count(rows), std::min(rows, norm::kPartials));
  return static_cast<std::size_t>(partials * width) *
         execution::size_bytes(execution::accumulation(storage));
}

Cost GatedRmsnormBackward::cost() const {
  return {20.0 * static_cast<double>(rows * width),
          5 * bytes(rows * width, storage) + bytes(width, storage) +
              bytes(width, execution::accumulation(storage))};
}

STOWAGE_OPERATOR_RUN(GatedRmsnormForward)
STOWAGE_OPERATOR_RUN(GatedRmsnormBackward)

}  // namespace stowage::kernels
