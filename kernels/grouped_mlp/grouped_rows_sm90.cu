// Grouped products over the rows of all experts on Hopper: y = x w[e]^T and dx = dy w[e].
//
// Layout: x, y (rows, columns) bf16, rows sorted by expert; w (E, M, K) bf16, read with either of
// its extents contracted; offsets (E + 1) int32 on the device. Numerics: products and sums in fp32,
// in the order of the contraction, rounded once. Cost: 2 M K flops a row; w is read once from
// memory, rows and weights as often as tiles need them from L2. Deterministic: a tile has one
// owner and one order. Design: see grouped_mainloop.cuh; rows of a tile that belong to the next
// expert are multiplied and not stored. So that they are fewer, the last rows of an expert may be
// tiles 192 by 128 instead of two rows of others (grouped_schedule.cuh); a row's bits are the same.
// Limit on one H200 at 64 experts of 512 rows, K = 2048: 91 % of the tensor pipe's cycles at a
// clock that power holds near 1.5 GHz.

#include "kernels/grouped_mlp/grouped_rows.cuh"

namespace stowage::kernels::grouped {
namespace {

/// Rounds the sums, or what is there and the sums, and stores them.
struct StoreRows {
  using Parameters = RowsOutput;

  template <int kWidth>
  static __device__ __forceinline__ void apply(const float (&sums)[kWidth / 2], const WarpRows& at,
                                               const StagedRows<kWidth>& staged,
                                               const RowsParameters& p, const Parameters& e) {
    const Bf16Rows out{static_cast<std::uint16_t*>(e.out) + at.row * p.columns + at.column,
                       p.columns, at.rows, p.columns - at.column};
    const auto each = [&](auto&& move) {
#pragma unroll 1
      for (int i = 0; i < 16; i += 4) {
        const int row = staged.first_row() + i;
        for (int column = staged.first_column(); column < kWidth; column += 64) {
          if (out.has(row, column)) move(out.piece(row, column), staged.piece(row, column));
        }
      }
    };
    if (e.accumulate) {
      __syncwarp();  // a tile of another width before: its pieces lay elsewhere
      each([](const uint4& there, uint4& here) { here = there; });
    }
    staged.stage(sums, e.accumulate);
    each([](uint4& there, const uint4& here) { there = here; });
  }
};

}  // namespace

cudaError_t launch_rows_sm90(bool transposed, int width, const RowsMaps& maps,
                             const RowsParameters& parameters, const RowsOutput& output, int blocks,
                             cudaStream_t stream) {
  using Epilogue = EachBlock<StoreRows>;
  const auto with = [&]<int kWidth>() {
    return transposed ? launch_rows<RowsOperands<true, kWidth>, Epilogue>(maps, parameters, output,
                                                                          blocks, stream)
                      : launch_rows<RowsOperands<false, kWidth>, Epilogue>(maps, parameters, output,
                                                                           blocks, stream);
  };
  if (width == 176) return with.template operator()<176>();
  if (width == 192) return with.template operator()<192>();
  return with.template operator()<208>();
}

}  // namespace stowage::kernels::grouped
