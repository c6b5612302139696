#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/activation/activation.hpp"
#include "kernels/grouped_mlp/grouped_layout.hpp"

/// What grouped_linear_cuda.cpp and grouped_mlp_cuda.cpp call: the launches of each kernel, without
/// checks. Private to this folder.
namespace stowage::kernels::grouped {

constexpr int kTileRows = 128;    ///< rows of an output tile: two wgmma row blocks
constexpr int kTallRows = 192;    ///< rows of the tiles that end an expert whose last rows are few
constexpr int kDepth = 64;        ///< contraction of one stage: a 128-byte row of bf16
constexpr int kMaxExperts = 512;  ///< that the tile schedule has room for

/// Widths of an output tile that are compiled; the one that wastes least serves a matrix.
constexpr int kTileWidths[] = {176, 192, 208};

/// Widths of the tiles of fc2's gradient: kFc2Width, and kFc2Narrow where that wastes less.
constexpr int kFc2Width = 192, kFc2Narrow = 128;

/// Operands of a product over rows: x (rows, depth), boxes as many rows high as a tile and 64 wide;
/// w, as wide as a tile, or half of it of each half of a gated w, by 64 of (E, columns, depth), or,
/// transposed, 64 by 64 of (E, depth, columns).
struct RowsMaps {
  CUtensorMap x, w;
  CUtensorMap tall_x, tall_w;  // for tall tiles
};

/// A product over the rows of all experts, one weight each.
struct RowsParameters {
  const int* offsets;  // (experts + 1)
  int experts;
  int columns;  // of the output; of one half where the weight has two
  int depth;    // contracted extent
};

/// y = x w[e]^T, or dx = dy w[e].
struct RowsOutput {
  void* out;  // (rows, columns) bf16
  bool accumulate;
};

/// h = x w[e]^T, a = row_weight * act(h).
struct Fc1Output {
  void* h;
  void* a;
  const float* row_weight;  // or null: 1
};

/// dh, a and drow_weight from g = dy w[e] and h.
struct Fc2Gradient {
  const void* h;
  void* dh;
  void* a;
  const float* row_weight;  // or null: 1
  float* tile_sums;         // (tiles across, rows), or null: no drow_weight
  float* drow_weight;
  std::int64_t rows;
};

/// dw[e] = dy^T x over the rows of each expert.
struct WeightParameters {
  float* dw;
  const int* offsets;
  std::int64_t rows;  // that dy and x have room for
  int experts;
  int outputs;
  int inputs;
  bool accumulate;
  int done = 0;  // rows of each expert that launches before have summed
};

cudaError_t launch_rows_sm90(bool transposed, int width, const RowsMaps& maps,
                             const RowsParameters& parameters, const RowsOutput& output, int blocks,
                             cudaStream_t stream);

/// For swiglu 192 wide.
cudaError_t launch_fc1_sm90(Activation kind, int width, const RowsMaps& maps,
                            const RowsParameters& parameters, const Fc1Output& output, int blocks,
                            cudaStream_t stream);

/// w transposed.
cudaError_t launch_fc2_sm90(Activation kind, const RowsMaps& maps, const RowsParameters& parameters,
                            const Fc2Gradient& gradient, int blocks, cudaStream_t stream);

/// Boxes of dy and x: 64 rows by 64 columns; of dw, fp32: 64 rows by 32 columns.
cudaError_t launch_weight_sm90(const CUtensorMap& dy, const CUtensorMap& x, const CUtensorMap& dw,
                               const WeightParameters& parameters, int blocks, cudaStream_t stream);

/// The path without tensor cores: any extents, fp32 or bf16 storage.
struct SimpleParameters {
  const int* offsets;
  const void* a;  // x, dy; dy of a weight gradient
  const void* b;  // w; x of a weight gradient
  void* out;
  std::int64_t rows;  // routed rows that the operands have room for
  int experts, outputs, inputs;
  bool bf16;
  bool accumulate;
};

cudaError_t launch_simple_forward(const SimpleParameters& parameters, cudaStream_t stream);
cudaError_t launch_simple_backward_input(const SimpleParameters& parameters, cudaStream_t stream);
cudaError_t launch_simple_backward_weight(const SimpleParameters& parameters, cudaStream_t stream);

}  // namespace stowage::kernels::grouped
