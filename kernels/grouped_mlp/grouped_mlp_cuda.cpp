#include "kernels/grouped_mlp/grouped_cuda.hpp"
#include "kernels/grouped_mlp/grouped_mlp_parts.hpp"
#include "kernels/launch.hpp"
#include "kernels/machine.hpp"

namespace stowage::kernels {

using namespace grouped;

namespace {

constexpr int kGatedWidth = 192;  // of a tile of fc1 with swiglu: half for each

}  // namespace

template <class S>
int GroupedFc1Forward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const GroupedCudaShape shape = shape_of(product());
  if (rows == 0) return cudaSuccess;
  if (!fast(shape, {o.x, o.w1, o.h, o.a}) || columns % 8 != 0)
    return detail::each_part<S>(*this, o, [stream](const auto& part, const auto& operands) {
      return part.launch(operands, stream);
    });
  const bool gated = kind == Activation::swiglu;
  const int tile = gated ? kGatedWidth : choose_width(columns, false);
  const RowsParameters parameters{.offsets = o.offsets,
                                  .experts = static_cast<int>(experts),
                                  .columns = static_cast<int>(columns),
                                  .depth = static_cast<int>(width)};
  const RowsMaps maps = rows_maps(shape, o.x, o.w1, gated ? Weights::gated : Weights::plain, tile);
  return launch_fc1_sm90(kind, tile, maps, parameters,
                         {.h = o.h, .a = o.a, .row_weight = o.row_weight},
                         machine().multiprocessors, static_cast<cudaStream_t>(stream));
}

template <class S>
int GroupedFc2BackwardInput::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const GroupedCudaShape shape = shape_of(product());
  if (rows == 0) return cudaSuccess;
  if (!fast(shape, {o.dy, o.w2, o.h, o.dh, o.a}))
    return detail::each_part<S>(*this, o, [stream](const auto& part, const auto& operands) {
      return part.launch(operands, stream);
    });
  const RowsParameters parameters{.offsets = o.offsets,
                                  .experts = static_cast<int>(experts),
                                  .columns = static_cast<int>(columns),
                                  .depth = static_cast<int>(width)};
  const Fc2Gradient gradient{.h = o.h,
                             .dh = o.dh,
                             .a = o.a,
                             .row_weight = o.row_weight,
                             .tile_sums = weighted ? o.workspace : nullptr,
                             .drow_weight = o.drow_weight,
                             .rows = rows};
  const RowsMaps maps = rows_maps(shape, o.dy, o.w2, Weights::transposed, kFc2Width);
  return launch_fc2_sm90(kind, maps, parameters, gradient, machine().multiprocessors,
                         static_cast<cudaStream_t>(stream));
}

STOWAGE_LAUNCHES(GroupedFc1Forward)
STOWAGE_LAUNCHES(GroupedFc2BackwardInput)

}  // namespace stowage::kernels
