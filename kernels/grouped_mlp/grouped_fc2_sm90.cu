// The gradient of an MLP of experts down to its hidden rows, on Hopper: g = dy w2[e], then, with h
// as saved, dh = row_weight * act'(h) g, a = row_weight * act(h) once more for the gradient of w2,
// and drow_weight = sum over columns of g act(h).
//
// Layouts and product as in grouped_rows_sm90.cu; h, dh (rows, F) or (rows, 2 F), a (rows, F) bf16;
// drow_weight (rows) fp32. Numerics: g is rounded to bf16 before it is used, so dh and a have the
// bits of the kernels apart. Each tile leaves the sum of its columns for each row; a second kernel
// adds these in the order of the tiles, so drow_weight has one order too. Cost: the product, and 2
// bytes for each element of h, dh and a; g never exists in memory.
// Prefetching h to L2 during the products made it 5 to 8 % slower.
// With swiglu, tiles 176 wide were no gain where they waste less of the matrix: the work behind the
// products goes by 64 columns.
// Limit on one H200: the work behind a tile's products takes as long as they do, two fifths of it
// waiting for h, and what exceeds the other warpgroup's products is seen; L2 is at 80 %.
// Next: the first row of a tile's lower half on its way while the upper one is worked on.

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

  // What does not exist is read as zeros.
  uint4 x[kPieces] = {}, up[kGated ? kPieces : 1] = {};
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
    // halves there are no registers for the first of them before the sums have left.
    HiddenRow<O::kWidth, kGated> next;
    if constexpr (!kGated) next.load(h, p.columns, staged.first_row(), staged.first_column());
    staged.stage(sums, false);
    if constexpr (kGated) next.load(h, p.columns, staged.first_row(), staged.first_column());
#pragma unroll 1
    for (int i = 0; i < 16; i += 4) {
      const int row = staged.first_row() + i;
      const bool exists = row < at.rows;
      const float weight = exists && e.row_weight != nullptr ? e.row_weight[at.row + row] : 1.0F;
      const auto hidden = next;
      next.load(h, p.columns, row + 4, staged.first_column());
      const float sum =
          differentiate_row<O::kWidth>(hidden, staged, row, weight, h, dh, a, p.columns);
      if (e.tile_sums == nullptr) continue;
      const float all = lanes_sum<8>(sum);
      if (staged.first_column() == 0 && exists) {
        e.tile_sums[at.column / O::kWidth * e.rows + at.row + row] = all;
      }
    }
  }

 private:
  /// A lane's pieces of one row, those that do not exist as well: without a branch around each they
  /// are worked on side by side.
  template <int kWidth>
  static __device__ __forceinline__ float differentiate_row(const HiddenRow<kWidth, kGated>& hidden,
                                                            const StagedRows<kWidth>& staged,
                                                            int row, float weight,
                                                            const Bf16Rows& h, const Bf16Rows& dh,
                                                            const Bf16Rows& a, int half) {
    constexpr int kPieces = HiddenRow<kWidth, kGated>::kPieces;
    uint4 dx[kPieces], dup[kPieces], active[kPieces];
    bool exists[kPieces];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      const int column = staged.first_column() + 64 * k;
      exists[k] = column < kWidth && h.has(row, column);
      Piece g(staged.piece(row, min(column, kWidth - 8))), x(hidden.x[k]),
          up(hidden.up[kGated ? k : 0]);
      const float part = differentiate<kKind>(g, x, up, weight);
      sum += exists[k] ? part : 0.0F;
      dx[k] = x.bits();
      dup[k] = up.bits();
      active[k] = g.bits();
    }
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      if (!exists[k]) continue;
      const int column = staged.first_column() + 64 * k;
      dh.piece(row, column) = dx[k];
      if constexpr (kGated) dh.right(half).piece(row, column) = dup[k];
      a.piece(row, column) = active[k];
    }
    return sum;
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
