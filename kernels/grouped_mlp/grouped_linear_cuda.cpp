#include "kernels/grouped_mlp/grouped_linear_cuda.hpp"

#include "kernels/grouped_mlp/grouped_cuda.hpp"
#include "kernels/machine.hpp"

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

void grouped_cuda_forward(const GroupedCudaShape& shape, const void* x, const void* w,
                          const std::int32_t* offsets, void* y, cudaStream_t stream) {
  check_shape(shape);
  if (shape.rows == 0) return;
  if (fast(shape, {x, w, y})) return multiply_rows(shape, false, x, w, offsets, y, false, stream);
  check_launch(launch_simple_forward(simple(shape, x, w, offsets, y, false), stream),
               "grouped_simple_forward");
}

void grouped_cuda_backward_input(const GroupedCudaShape& shape, const void* dy, const void* w,
                                 const std::int32_t* offsets, void* dx, bool accumulate,
                                 cudaStream_t stream) {
  check_shape(shape);
  if (shape.rows == 0) return;
  if (fast(shape, {dy, w, dx}))
    return multiply_rows(shape, true, dy, w, offsets, dx, accumulate, stream);
  check_launch(launch_simple_backward_input(simple(shape, dy, w, offsets, dx, accumulate), stream),
               "grouped_simple_backward_input");
}

void grouped_cuda_backward_weight(const GroupedCudaShape& shape, const void* dy, const void* x,
                                  const std::int32_t* offsets, float* dw, bool accumulate,
                                  cudaStream_t stream) {
  check_shape(shape);
  if (!fast(shape, {dy, x, dw})) {
    return check_launch(
        launch_simple_backward_weight(simple(shape, dy, x, offsets, dw, accumulate), stream),
        "grouped_simple_backward_weight");
  }
  const WeightParameters parameters{.dw = dw,
                                    .offsets = offsets,
                                    .rows = shape.rows,
                                    .experts = static_cast<int>(shape.experts),
                                    .outputs = static_cast<int>(shape.outputs),
                                    .inputs = static_cast<int>(shape.inputs),
                                    .accumulate = accumulate};
  check_launch(
      launch_weight_sm90(matrix_map(dy, shape.rows, shape.outputs, kDepth),
                         matrix_map(x, shape.rows, shape.inputs, kDepth), gradient_map(shape, dw),
                         parameters, machine().multiprocessors, stream),
      "grouped_weight");
}

}  // namespace stowage::kernels
