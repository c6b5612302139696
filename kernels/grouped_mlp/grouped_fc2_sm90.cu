// The gradient of an MLP of experts down to its hidden rows, on Hopper: g = dy w2[e], then, with h
// as saved, dh = row_weight * act'(h) g, a = row_weight * act(h) once more for the gradient of w2,
// and drow_weight = sum over columns of g act(h).
//
// Layouts and product as in grouped_rows_sm90.cu; h, dh (rows, F) or (rows, 2 F), a (rows, F) bf16;
// drow_weight (rows) fp32. Numerics: g is rounded to bf16 before it is used, so dh and a have the
// bits of the kernels apart. Each tile leaves the sum of its columns for each row; a second kernel
// adds these in the order of the tiles, so equal offsets give drow_weight equal bits. Cost: the
// product, and 2 bytes for each element of h, dh and a; g never exists in memory.
// Tiles are 192 columns wide, which begin where lines of L2 do, and the last two 128 where no more
// is left, so that 1024, 1408 and 5632 columns waste nothing; where there are no such narrow tiles,
// an expert's last rows may be tall ones. NOTES.md has what was tried besides.
// What is behind the products shares the issue slots and the shared memory with them, so it is
// instructions that count: row addresses in registers that move down, one formula for both results
// of the activation.
// Limit on one H200 (ncu, SwiGLU, 32 experts): the products, tensor cores 85 % busy at the clock
// that power leaves, L2 at 80 %; what is behind them takes three quarters of their time.

#include "kernels/activation/activation.cuh"
#include "kernels/grouped_mlp/grouped_rows.cuh"

namespace stowage::kernels::grouped {
namespace {

/// A lane's pieces of one row of h, and of its other half.
template <int kPieces, bool kGated>
struct HiddenRow {
  /// From the first piece; of the row's pieces from there on, `pieces` exist. A lane's are 8 apart.
  __device__ __forceinline__ void load(const uint4* from, int half, int pieces) {
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      if (8 * k < pieces) {
        x[k] = from[8 * k];
        if constexpr (kGated) up[k] = from[half + 8 * k];
      }
    }
  }

  // What does not exist is read as zeros, or as what was there.
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

/// The epilogue: all blocks of a warp's rows in one loop, four rows at a time, eight lanes to a
/// row. The sums of those behind the first wait rounded, so that there are registers for the next
/// rows of h to be on their way.
template <Activation kKind>
struct DifferentiateRows {
  using Parameters = Fc2Gradient;
  static constexpr bool kGated = kKind == Activation::swiglu;
  static constexpr int kAhead = kGated ? 1 : 2;  // rows of h on their way to a lane

  template <int kBlocks, int kWidth>
  static __device__ __forceinline__ void apply(const float (&sums)[kBlocks][kWidth / 2],
                                               const WarpRows& at, const StagedRows<kWidth>& staged,
                                               const RowsParameters& p, const Parameters& e) {
    constexpr int kPieces = kWidth / 64;
    static_assert(kWidth % 64 == 0);
    constexpr int kSteps = 4 * kBlocks;
    std::uint32_t lower[kBlocks - 1][kWidth / 4];
#pragma unroll
    for (int block = 1; block < kBlocks; ++block) {
      round_sums(sums[block], lower[block - 1]);
      pin_registers(lower[block - 1]);
    }
    staged.stage(sums[0], false);
    Place place(at, staged.first_row(), staged.first_column(), p, e);
    HiddenRow<kPieces, kGated> hidden[kAhead];
    float weight[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) fetch(place, 4 * j, at, e, hidden[j], weight[j]);
#pragma unroll 1
    for (int i = 0; i < kSteps; i += kAhead) {
#pragma unroll
      for (int block = 1; block < kBlocks; ++block) {
        if (i == 4 * block) staged.stage(lower[block - 1]);
      }
      const int rows_ahead = (i + kAhead) % 4 == 0 ? 48 + 4 * kAhead : 4 * kAhead;
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const auto row = hidden[j];
        const float row_weight = weight[j];
        fetch(place, i + kAhead < kSteps ? rows_ahead : at.rows, at, e, hidden[j], weight[j]);
        const bool exists = place.row < at.rows;
        const uint4* g = &staged.piece((i + j) % 4 * 4 + staged.first_row(), staged.first_column());
        const float sum = differentiate_row(row, g, row_weight, place, exists ? place.pieces : 0);
        if (e.tile_sums != nullptr) {
          const float all = lanes_sum<8>(sum);
          if (staged.first_column() == 0 && exists) {
            e.tile_sums[at.strip * e.rows + at.row + place.row] = all;
          }
        }
        place.down((i + j) % 4 == 3 ? 52 : 4);
      }
    }
  }

 private:
  /// A lane's first piece of a row, in h and dh, whose rows have two halves if gated, and in a.
  struct Place {
    __device__ __forceinline__ Place(const WarpRows& at, int first_row, int first_column,
                                     const RowsParameters& p, const Parameters& e)
        : row(first_row),
          half(p.columns / 8),
          pieces((p.columns - at.column - first_column + 7) / 8) {
      const std::int64_t piece = (at.column + first_column) / 8;
      const std::int64_t h_at = (at.row + row) * h_stride() + piece;
      h = static_cast<const uint4*>(e.h) + h_at;
      dh = static_cast<uint4*>(e.dh) + h_at;
      a = static_cast<uint4*>(e.a) + (at.row + row) * half + piece;
    }
    __device__ __forceinline__ int h_stride() const { return kGated ? 2 * half : half; }
    __device__ __forceinline__ void down(int rows) {
      row += rows;
      h += std::int64_t{rows} * h_stride();
      dh += std::int64_t{rows} * h_stride();
      a += std::int64_t{rows} * half;
    }

    int row;     // from the warp's first on
    int half;    // pieces of a row of a
    int pieces;  // that exist from here on
    const uint4* h;
    uint4 *dh, *a;
  };

  /// What a lane needs of the row `down` from its place, where that is the expert's.
  template <int kPieces>
  static __device__ __forceinline__ void fetch(const Place& place, int down, const WarpRows& at,
                                               const Parameters& e,
                                               HiddenRow<kPieces, kGated>& hidden, float& weight) {
    const int row = place.row + down;
    const bool exists = row < at.rows;
    hidden.load(place.h + std::int64_t{down} * place.h_stride(), place.half,
                exists ? place.pieces : 0);
    weight = exists && e.row_weight != nullptr ? e.row_weight[at.row + row] : 1.0F;
  }

  /// A lane's pieces of one row, those that do not exist as well: without a branch around each they
  /// are worked on side by side. Returns their sum of g act(h).
  template <int kPieces>
  static __device__ __forceinline__ float differentiate_row(
      const HiddenRow<kPieces, kGated>& hidden, const uint4* gradient, float weight,
      const Place& place, int pieces) {
    uint4 dx[kPieces], dup[kPieces], active[kPieces];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      Piece g(gradient[8 * k]), x(hidden.x[k]), up(hidden.up[kGated ? k : 0]);
      const float part = differentiate<kKind>(g, x, up, weight);
      sum += 8 * k < pieces ? part : 0.0F;
      dx[k] = x.bits();
      dup[k] = up.bits();
      active[k] = g.bits();
    }
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      if (8 * k >= pieces) continue;
      store_piece(place.dh + 8 * k, dx[k]);
      if constexpr (kGated) store_piece(place.dh + place.half + 8 * k, dup[k]);
      store_piece(place.a + 8 * k, active[k]);
    }
    return sum;
  }
};

/// The expert that has a row; its rows begin at begin[expert].
__device__ __forceinline__ int expert_of(const int* begin, int experts, int row) {
  int expert = 0, behind = experts;
  while (behind - expert > 1) {
    const int middle = (expert + behind) / 2;
    if (begin[middle] <= row)
      expert = middle;
    else
      behind = middle;
  }
  return expert;
}

/// drow_weight = the tiles' sums of each row, added in order. A row has as many as its expert has
/// tiles beside each other there.
template <class Tiles>
__global__ void __launch_bounds__(256) row_weight_kernel(const __grid_constant__ RowsParameters p,
                                                         const __grid_constant__ Fc2Gradient e) {
  const int row = static_cast<int>(blockIdx.x * 256 + threadIdx.x);
  int tiles = typename Tiles::FlatStrips(p.columns).count;
  if constexpr (Tiles::kHasTall) {
    __shared__ int begin[kMaxExperts + 1];
    for (int i = static_cast<int>(threadIdx.x); i <= p.experts; i += 256) begin[i] = p.offsets[i];
    __syncthreads();
    const int expert = expert_of(begin, p.experts, row);
    tiles = Tiles::beside(row - begin[expert], begin[expert + 1] - begin[expert], p.columns);
  }
  if (row >= e.rows || row >= p.offsets[p.experts]) return;
  float sum = 0;
  for (int i = 0; i < tiles; ++i) sum += e.tile_sums[i * e.rows + row];
  e.drow_weight[row] = sum;
}

template <Activation kKind, int kNarrow>
cudaError_t launch(const RowsMaps& maps, const RowsParameters& parameters,
                   const Fc2Gradient& gradient, int blocks, cudaStream_t stream) {
  using O = RowsOperands<true, kFc2Width, false, kNarrow>;
  const cudaError_t status =
      launch_rows<O, DifferentiateRows<kKind>>(maps, parameters, gradient, blocks, stream);
  if (status != cudaSuccess || gradient.tile_sums == nullptr) return status;
  const auto groups = static_cast<unsigned>((gradient.rows + 255) / 256);
  row_weight_kernel<typename O::Tiles><<<groups, 256, 0, stream>>>(parameters, gradient);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_fc2_sm90(Activation kind, const RowsMaps& maps, const RowsParameters& parameters,
                            const Fc2Gradient& gradient, int blocks, cudaStream_t stream) {
  // What tells shapes of tiles apart is seen, so there are no narrow ones where none are needed.
  const bool narrow = narrow_strips(parameters.columns, kFc2Width, kFc2Narrow) > 0;
  const auto with = [&]<Activation kKind>() {
    return narrow ? launch<kKind, kFc2Narrow>(maps, parameters, gradient, blocks, stream)
                  : launch<kKind, 0>(maps, parameters, gradient, blocks, stream);
  };
  return kind == Activation::swiglu ? with.template operator()<Activation::swiglu>()
                                    : with.template operator()<Activation::squared_relu>();
}

}  // namespace stowage::kernels::grouped
