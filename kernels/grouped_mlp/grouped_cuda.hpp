#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <initializer_list>

#include "execution/dtype.hpp"
#include "kernels/grouped_mlp/grouped_launch.hpp"

/// What the callers of the launches share: checks, tensor maps, the choice of a tile. Private to
/// this folder.
namespace stowage::kernels::grouped {

/// Sizes of the grouped products of grouped_linear.hpp on the GPU; matrices are dense and
/// row-major, bf16 or, slowly, fp32.
struct GroupedCudaShape {
  std::int64_t rows = 0;     ///< routed rows that x and y have room for
  std::int64_t experts = 0;  ///< E, at most 512
  std::int64_t outputs = 0;  ///< M
  std::int64_t inputs = 0;   ///< K
  bool bf16 = true;          ///< storage; else fp32
};

/// @throws Error if the shape is not served
void check_shape(const GroupedCudaShape& shape);
/// That of a product, checked.
template <class Op>
GroupedCudaShape shape_of(const Op& op) {
  const GroupedCudaShape shape{op.rows, op.experts, op.outputs, op.inputs,
                               op.storage == execution::Dtype::bf16};
  check_shape(shape);
  return shape;
}
/// @throws Error if a launch failed
void check_launch(cudaError_t status, const char* kernel);

/// Whether the tensor-core kernels serve operands at these addresses.
bool fast(const GroupedCudaShape& shape, std::initializer_list<const void*> addresses);

/// The width of kTileWidths that wastes least for `columns` of output.
int choose_width(std::int64_t columns, bool transposed);

/// How a product over rows reads its weights: as they are, as a gate and another half, transposed.
enum class Weights : std::uint8_t { plain, gated, transposed };

/// Maps of x or dy and of w for a product over rows with tiles so wide.
RowsMaps rows_maps(const GroupedCudaShape& shape, const void* x, const void* w, Weights kind,
                   int width);
/// Maps of x or dy (rows, columns), and of dw, with boxes as grouped_launch.hpp asks for.
CUtensorMap matrix_map(const void* base, std::int64_t rows, std::int64_t columns, int box_rows);
CUtensorMap gradient_map(const GroupedCudaShape& shape, const float* dw);

SimpleParameters simple(const GroupedCudaShape& shape, const void* a, const void* b,
                        const std::int32_t* offsets, void* out, bool accumulate);

}  // namespace stowage::kernels::grouped
