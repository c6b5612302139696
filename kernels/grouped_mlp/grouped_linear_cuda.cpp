#include "kernels/grouped_mlp/grouped_cuda.hpp"
#include "kernels/grouped_mlp/grouped_linear.hpp"
#include "kernels/launch.hpp"
#include "kernels/machine.hpp"

// The products on the GPU: tensor cores serve bf16 with extents that are multiples of 8 at 16-byte
// aligned addresses; anything else takes a path without them. fp32 sums in a fixed order: the same
// inputs give the same bits.

namespace stowage::kernels {

using namespace grouped;

namespace {

/// Both products over rows: of x or dy (rows, depth) into (rows, columns).
void multiply_rows(const GroupedCudaShape& s, bool transposed, const void* x, const void* w,
                   const std::int32_t* offsets, void* out, bool accumulate, cudaStream_t stream) {
  const std::int64_t columns = transposed ? s.inputs : s.outputs;
  const std::int64_t depth = transposed ? s.outputs : s.inputs;
  const int width = choose_width(columns, transposed);
  const RowsParameters parameters{.offsets = offsets,
                                  .experts = static_cast<int>(s.experts),
                                  .columns = static_cast<int>(columns),
                                  .depth = static_cast<int>(depth)};
  const Weights kind = transposed ? Weights::transposed : Weights::plain;
  check_launch(launch_rows_sm90(transposed, width, rows_maps(s, x, w, kind, width), parameters,
                                {out, accumulate}, machine().multiprocessors, stream),
               "grouped_rows");
}

}  // namespace

template <class S>
int GroupedLinearForward::launch(const Operands<Pointers<S>>& o, void* handle) const {
  const auto stream = static_cast<cudaStream_t>(handle);
  const GroupedCudaShape shape = shape_of(*this);
  if (rows == 0) return cudaSuccess;
  if (!fast(shape, {o.x, o.w, o.y}))
    return launch_simple_forward(simple(shape, o.x, o.w, o.offsets, o.y, false), stream);
  multiply_rows(shape, false, o.x, o.w, o.offsets, o.y, false, stream);
  return cudaSuccess;
}

template <class S>
int GroupedLinearBackwardInput::launch(const Operands<Pointers<S>>& o, void* handle) const {
  const auto stream = static_cast<cudaStream_t>(handle);
  const GroupedCudaShape shape = shape_of(*this);
  if (rows == 0) return cudaSuccess;
  if (!fast(shape, {o.dy, o.w, o.dx}))
    return launch_simple_backward_input(simple(shape, o.dy, o.w, o.offsets, o.dx, accumulate),
                                        stream);
  multiply_rows(shape, true, o.dy, o.w, o.offsets, o.dx, accumulate, stream);
  return cudaSuccess;
}

template <class S>
int GroupedLinearBackwardWeight::launch(const Operands<Pointers<S>>& o, void* handle) const {
  const auto stream = static_cast<cudaStream_t>(handle);
  const GroupedCudaShape shape = shape_of(*this);
  if (!fast(shape, {o.dy, o.x, o.dw}))
    return launch_simple_backward_weight(simple(shape, o.dy, o.x, o.offsets, o.dw, accumulate),
                                         stream);
  const WeightParameters parameters{.dw = o.dw,
                                    .offsets = o.offsets,
                                    .rows = rows,
                                    .experts = static_cast<int>(experts),
                                    .outputs = static_cast<int>(outputs),
                                    .inputs = static_cast<int>(inputs),
                                    .accumulate = accumulate};
  return launch_weight_sm90(matrix_map(o.dy, rows, outputs, kDepth),
                            matrix_map(o.x, rows, inputs, kDepth), gradient_map(shape, o.dw),
                            parameters, machine().multiprocessors, stream);
}

STOWAGE_LAUNCHES(GroupedLinearForward)
STOWAGE_LAUNCHES(GroupedLinearBackwardInput)
STOWAGE_LAUNCHES(GroupedLinearBackwardWeight)

}  // namespace stowage::kernels
