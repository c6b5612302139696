// The first product of an MLP of experts with its activation behind it, on Hopper:
// h = x w[e]^T and a = row_weight * act(h).
//
// Layouts and product as in grouped_rows_sm90.cu; h (rows, F), or (rows, 2 F) with the gate first
// for SwiGLU, and a (rows, F) bf16; row_weight (rows) fp32. Numerics: a is computed in fp32 from h
// as rounded, so it has the bits of the activation kernel on the stored h. Cost: the product, and
// 2 bytes for each element of h and a; h is not read again. For SwiGLU a tile is 96 columns of the
// gate and the same 96 of the other half, so both meet in one warp's staged rows. Limit: as
// grouped_rows_sm90.cu; what is behind the products costs up to 5 % of them.

#include "kernels/activation/activation.cuh"
#include "kernels/grouped_mlp/grouped_rows.cuh"

namespace stowage::kernels::grouped {
namespace {

template <Activation kKind>
struct ActivateRows {
  using Parameters = Fc1Output;
  static constexpr bool kGated = kKind == Activation::swiglu;

  template <int kWidth>
  static __device__ __forceinline__ void apply(const float (&sums)[kWidth / 2], const WarpRows& at,
                                               const StagedRows<kWidth>& staged,
                                               const RowsParameters& p, const Parameters& e) {
    constexpr int kColumns = kGated ? kWidth / 2 : kWidth;
    const std::int64_t h_width = kGated ? 2 * p.columns : p.columns;
    const int there = p.columns - at.column;
    const Bf16Rows h{static_cast<std::uint16_t*>(e.h) + at.row * h_width + at.column, h_width,
                     at.rows, there};
    const Bf16Rows a{static_cast<std::uint16_t*>(e.a) + at.row * p.columns + at.column, p.columns,
                     at.rows, there};
    staged.stage(sums, false);
#pragma unroll 1
    for (int row = staged.first_row(); row < min(16, at.rows); row += 4) {
      const float weight = e.row_weight != nullptr ? e.row_weight[at.row + row] : 1.0F;
      for (int column = staged.first_column(); column < min(kColumns, there); column += 64) {
        const uint4 x = staged.piece(row, column);
        const uint4 up = kGated ? staged.piece(row, kColumns + column) : x;
        h.piece(row, column) = x;
        if constexpr (kGated) h.right(p.columns).piece(row, column) = up;
        Piece active(x);
        const Piece other(up);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          active.values[i] =
              weight * activation::activate<kKind>(active.values[i], other.values[i]);
        }
        a.piece(row, column) = active.bits();
      }
    }
  }
};

template <int kWidth, Activation kKind>
cudaError_t launch(const RowsMaps& maps, const RowsParameters& parameters, const Fc1Output& output,
                   int blocks, cudaStream_t stream) {
  using Rows = ActivateRows<kKind>;
  return launch_rows<RowsOperands<false, kWidth, Rows::kGated>, EachBlock<Rows>>(
      maps, parameters, output, blocks, stream);
}

}  // namespace

cudaError_t launch_fc1_sm90(Activation kind, int width, const RowsMaps& maps,
                            const RowsParameters& parameters, const Fc1Output& output, int blocks,
                            cudaStream_t stream) {
  const auto with = [&]<int kWidth, Activation kKind>() {
    return launch<kWidth, kKind>(maps, parameters, output, blocks, stream);
  };
  if (kind == Activation::swiglu) return with.template operator()<192, Activation::swiglu>();
  if (width == 176) return with.template operator()<176, Activation::squared_relu>();
  if (width == 192) return with.template operator()<192, Activation::squared_relu>();
  return with.template operator()<208, Activation::squared_relu>();
}

}  // namespace stowage::kernels::grouped
