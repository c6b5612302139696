#include "kernels/grouped_mlp/grouped_mlp_cuda.hpp"

#include "execution/dtype.hpp"
#include "kernels/activation/activation_launch.hpp"
#include "kernels/grouped_mlp/grouped_cuda.hpp"
#include "kernels/machine.hpp"

namespace stowage::kernels {

using namespace grouped;

namespace {

constexpr int kGatedWidth = 192;  // of a tile of fc1 with swiglu: half for each

template <class S>
void activate(Activation kind, std::int64_t rows, std::int64_t columns, const void* h,
              const float* row_weight, void* a, const std::int32_t* valid_rows,
              cudaStream_t stream) {
  const activation::Forward<S> args{.kind = kind,
                                    .rows = rows,
                                    .columns = columns,
                                    .x = static_cast<const S*>(h),
                                    .row_weight = row_weight,
                                    .y = static_cast<S*>(a),
                                    .valid_rows = valid_rows};
  check_launch(static_cast<cudaError_t>(activation::launch(args, stream)), "activation_forward");
}

/// The gradient in parts, for what the fused kernel does not serve: g waits in a.
template <class S>
void fc2_in_parts(const GroupedCudaShape& shape, Activation kind, const GroupedCudaFc2& args,
                  cudaStream_t stream) {
  const std::int32_t* valid = args.offsets + shape.experts;
  grouped_cuda_backward_input(shape, args.dy, args.w, args.offsets, args.a, false, stream);
  const activation::Backward<S> gradient{.kind = kind,
                                         .rows = shape.rows,
                                         .columns = shape.inputs,
                                         .dy = static_cast<const S*>(args.a),
                                         .x = static_cast<const S*>(args.h),
                                         .row_weight = args.row_weight,
                                         .dx = static_cast<S*>(args.dh),
                                         .drow_weight = args.drow_weight,
                                         .valid_rows = valid};
  check_launch(static_cast<cudaError_t>(activation::launch(gradient, stream)),
               "activation_backward");
  activate<S>(kind, shape.rows, shape.inputs, args.h, args.row_weight, args.a, valid, stream);
}

}  // namespace

void grouped_cuda_fc1_forward(const GroupedCudaShape& shape, Activation kind, const void* x,
                              const void* w, const std::int32_t* offsets, const float* row_weight,
                              void* h, void* a, cudaStream_t stream) {
  check_shape(shape);
  if (shape.rows == 0) return;
  const bool gated = kind == Activation::swiglu;
  const std::int64_t columns = gated ? shape.outputs / 2 : shape.outputs;
  if (!fast(shape, {x, w, h, a}) || columns % 8 != 0) {
    grouped_cuda_forward(shape, x, w, offsets, h, stream);
    const std::int32_t* valid = offsets + shape.experts;
    return shape.bf16 ? activate<execution::Bf16>(kind, shape.rows, columns, h, row_weight, a,
                                                  valid, stream)
                      : activate<float>(kind, shape.rows, columns, h, row_weight, a, valid, stream);
  }
  const int width = gated ? kGatedWidth : choose_width(columns, false);
  const RowsParameters parameters{.offsets = offsets,
                                  .experts = static_cast<int>(shape.experts),
                                  .columns = static_cast<int>(columns),
                                  .depth = static_cast<int>(shape.inputs)};
  const RowsMaps maps = rows_maps(shape, x, w, gated ? Weights::gated : Weights::plain, width);
  check_launch(
      launch_fc1_sm90(kind, width, maps, parameters, {.h = h, .a = a, .row_weight = row_weight},
                      machine().multiprocessors, stream),
      "grouped_fc1");
}

void grouped_cuda_fc2_backward_input(const GroupedCudaShape& shape, Activation kind,
                                     const GroupedCudaFc2& args, cudaStream_t stream) {
  check_shape(shape);
  if (shape.rows == 0) return;
  if (!fast(shape, {args.dy, args.w, args.h, args.dh, args.a})) {
    return shape.bf16 ? fc2_in_parts<execution::Bf16>(shape, kind, args, stream)
                      : fc2_in_parts<float>(shape, kind, args, stream);
  }
  const RowsParameters parameters{.offsets = args.offsets,
                                  .experts = static_cast<int>(shape.experts),
                                  .columns = static_cast<int>(shape.inputs),
                                  .depth = static_cast<int>(shape.outputs)};
  const bool sums = args.drow_weight != nullptr;
  const Fc2Gradient gradient{.h = args.h,
                             .dh = args.dh,
                             .a = args.a,
                             .row_weight = args.row_weight,
                             .tile_sums = sums ? static_cast<float*>(args.workspace) : nullptr,
                             .drow_weight = args.drow_weight,
                             .rows = shape.rows};
  const RowsMaps maps = rows_maps(shape, args.dy, args.w, Weights::transposed, kFc2Width);
  check_launch(launch_fc2_sm90(kind, maps, parameters, gradient, machine().multiprocessors, stream),
               "grouped_fc2");
}

}  // namespace stowage::kernels
