// The gradient of an MLP of experts down to its hidden rows, on Hopper: g = dy w2[e], then, with h
// as saved, dh = row_weight * act'(h) g, a = row_weight * act(h) once more for the gradient of w2,
// and drow_weight = sum over columns of g act(h).
//
// Layouts and product as in grouped_rows_sm90.cu; h, dh (rows, F) or (rows, 2 F), a (rows, F) bf16;
// drow_weight (rows) fp32. Numerics: g is rounded to bf16 before it is used, so dh and a have the
// bits of the kernels apart. Each tile leaves the sum of its columns for each row; a second kernel
// adds these in the order of the tiles, so drow_weight has one order too. Cost: the product, and 2
// bytes for each element of h, dh and a; g never exists in memory.
// Limit on one H200: the work behind a tile's products takes as long as they do, waiting for h, and
// what exceeds the other warpgroup's products is seen: 7 to 15 % of them, for SwiGLU 16 to 29 %.
// Prefetching h to L2 during the products made it 5 to 8 % slower. Next: h by the copy engine into
// shared memory, in place of a stage.

#include "kernels/activation/activation.cuh"
#include "kernels/grouped_mlp/grouped_rows.cuh"

namespace stowage::kernels::grouped {
namespace {

/// A lane's pieces of one row of h, and of its other half.
template <int kWidth, bool kGated>
struct HiddenRow {
  static constexpr int kPieces = (kWidth + 63) / 64;

  __device__ __forceinline__ void load(const Bf16Rows& h, int half, int row, int first_column) {
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      const int column = first_column + 64 * k;
      if (row < 16 && column < kWidth && h.has(row, column)) {
        x[k] = h.piece(row, column);
        if constexpr (kGated) up[k] = h.right(half).piece(row, column);
      }
    }
  }

  uint4 x[kPieces], up[kGated ? kPieces : 1];
};

/// A piece of a row: x and up become their gradients for g, g becomes weight * act(x). Returns the
/// sum of g act(x), in order.
template <Activation kKind>
__device__ __forceinline__ float differentiate(Piece& g, Piece& x, Piece& up, float weight) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float value = x.values[i], other = up.values[i], gradient = g.values[i];
    g.values[i] = weight * activation::activate<kKind>(value, other);
    sum +=
        activation::differentiate<kKind>(gradient, value, other, weight, x.values[i], up.values[i]);
  }
  return sum;
}

template <Activation kKind>
struct DifferentiateRows {
  using Parameters = Fc2Gradient;
  static constexpr bool kGated = kKind == Activation::swiglu;

  template <class O>
  static __device__ __forceinline__ void apply(const float (&sums)[O::kWidth / 2],
                                               const WarpRows& at,
                                               const StagedRows<O::kWidth>& staged,
                                               const RowsParameters& p, const Parameters& e) {
    const std::int64_t h_width = kGated ? 2 * p.columns : p.columns;
    const std::int64_t h_at = at.row * h_width + at.column;
    const int there = p.columns - at.column;
    const Bf16Rows h{static_cast<std::uint16_t*>(const_cast<void*>(e.h)) + h_at, h_width, at.rows,
                     there};
    const Bf16Rows dh{static_cast<std::uint16_t*>(e.dh) + h_at, h_width, at.rows, there};
    const Bf16Rows a{static_cast<std::uint16_t*>(e.a) + at.row * p.columns + at.column, p.columns,
                     at.rows, there};
    // The pieces of the next row are on their way while those of this one are worked on; with two
    // halves there are no registers for that.
    HiddenRow<O::kWidth, kGated> next;
    if constexpr (!kGated) next.load(h, p.columns, staged.first_row(), staged.first_column());
    staged.stage(sums, false);
#pragma unroll 1
    for (int i = 0; i < 16; i += 4) {
      const int row = staged.first_row() + i;
      const bool exists = row < at.rows;
      const float weight = exists && e.row_weight != nullptr ? e.row_weight[at.row + row] : 1.0F;
      if constexpr (kGated) next.load(h, p.columns, row, staged.first_column());
      const auto hidden = next;
      if constexpr (!kGated) next.load(h, p.columns, row + 4, staged.first_column());
      float sum = 0;
#pragma unroll
      for (int k = 0; k < hidden.kPieces; ++k) {
        const int column = staged.first_column() + 64 * k;
        if (column >= O::kWidth || !h.has(row, column)) continue;
        Piece g(staged.piece(row, column)), x(hidden.x[k]), up(hidden.up[kGated ? k : 0]);
        sum += differentiate<kKind>(g, x, up, weight);
        dh.piece(row, column) = x.bits();
        if constexpr (kGated) dh.right(p.columns).piece(row, column) = up.bits();
        a.piece(row, column) = g.bits();
      }
      if (e.tile_sums == nullptr) continue;
      sum = lanes_sum<8>(sum);
      if (staged.first_column() == 0 && exists) {
        e.tile_sums[at.column / O::kWidth * e.rows + at.row + row] = sum;
      }
    }
  }
};

/// drow_weight = the tiles' sums of each row, added in order.
__global__ void __launch_bounds__(256)
    row_weight_kernel(const float* tile_sums, int tiles, std::int64_t rows, const int* valid_rows,
                      float* drow_weight) {
  const std::int64_t row = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (row >= min(rows, static_cast<std::int64_t>(*valid_rows))) return;
  float sum = 0;
  for (int i = 0; i < tiles; ++i) sum += tile_sums[i * rows + row];
  drow_weight[row] = sum;
}

template <int kWidth, Activation kKind>
cudaError_t launch(const CUtensorMap& dy, const CUtensorMap& w, const RowsParameters& parameters,
                   const Fc2Gradient& gradient, int blocks, cudaStream_t stream) {
  const cudaError_t status =
      launch_rows<Operands<false, true, kWidth, kStagingBytes<kWidth>>, DifferentiateRows<kKind>>(
          dy, w, parameters, gradient, blocks, stream);
  if (status != cudaSuccess || gradient.tile_sums == nullptr) return status;
  const auto groups = static_cast<unsigned>((gradient.rows + 255) / 256);
  row_weight_kernel<<<groups, 256, 0, stream>>>(
      gradient.tile_sums, ceil_div(parameters.columns, kWidth), gradient.rows,
      parameters.offsets + parameters.experts, gradient.drow_weight);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_fc2_sm90(Activation kind, int width, const CUtensorMap& dy, const CUtensorMap& w,
                            const RowsParameters& parameters, const Fc2Gradient& gradient,
                            int blocks, cudaStream_t stream) {
  const auto with = [&]<int kWidth, Activation kKind>() {
    return launch<kWidth, kKind>(dy, w, parameters, gradient, blocks, stream);
  };
  if (kind == Activation::swiglu) return with.template operator()<192, Activation::swiglu>();
  if (width == 176) return with.template operator()<176, Activation::squared_relu>();
  return with.template operator()<192, Activation::squared_relu>();
}

}  // namespace stowage::kernels::grouped
