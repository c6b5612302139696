#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/ssd/ssd_layout.hpp"

/// The launches of the scan's kernels: plain structs between ssd_cuda.cpp (checks, tensor maps,
/// workspace) and the .cu files.
namespace stowage::kernels::ssd {

/// Calls launch<N, columns> of a kernel compiled for its parameters.
template <class Parameters>
auto with_kernel(const Parameters& p, auto&& launch) {
  if (p.columns != kPart) return launch.template operator()<kCutState, kCutColumns>();
  return p.state == 128 ? launch.template operator()<128, kPart>()
                        : launch.template operator()<64, kPart>();
}

struct PrepareParameters {
  Sizes sizes;
  const void* dt_raw = nullptr;
  std::int64_t dt_stride = 0;
  const void* a_log = nullptr;
  const void* dt_bias = nullptr;
  const int* seq_idx = nullptr;
  float dt_min = 0, dt_max = 0;
  bool bf16_parameters = false;
  float* records = nullptr;  ///< (chunks, heads, record_floats)
  Span* spans = nullptr;     ///< (chunks, 64)
};
cudaError_t launch_prepare(const PrepareParameters& parameters, cudaStream_t stream);

/// One direction of the state pass: the state (forward: U = B, V = X, weight dt 2^..) or its
/// adjoint (backward in time: U = C, V = dY, weight 2^a).
struct StatesDirection {
  CUtensorMap v;     ///< box 64 tokens x 64 columns
  CUtensorMap u;     ///< the same box, of xbc
  int u_column = 0;  ///< first column of U
  bool reverse = false;
  const float* edge_state = nullptr;  ///< (H, P, N): enters the first (last) segment, or nullptr
  float* end_state = nullptr;         ///< (H, P, N): leaves the last (first) segment, or nullptr
  float* partials = nullptr;          ///< (pieces, units, 64 N) fp32 in fragment order
  float* through = nullptr;           ///< (pieces, heads): decay, 0 at a boundary, < 0: no partial
  /// (chunks, units, 64 N) fp16 tiles, scaled; if units cut heads, (chunks, N / 64, units,
  /// 64 x 64), so that the rows of a head are neighbours
  void* images = nullptr;
};

struct StatesParameters {
  Sizes sizes;
  int state = 0;
  int directions = 1;
  StatesDirection direction[2];
  float* scales = nullptr;  ///< (chunks, units, kScaleFloats): of the images of both directions
  const float* records = nullptr;
  const Span* spans = nullptr;
  int columns = kPart;  ///< as of columns_of
};
/// Local states at the far edges of all pieces of segments that have a successor.
cudaError_t launch_segment_states(const StatesParameters& parameters, cudaStream_t stream);
/// The state before every chunk (its adjoint after it) as fp16 operand tiles.
cudaError_t launch_chunk_states(const StatesParameters& parameters, cudaStream_t stream);

/// What enters each segment in the forward: the states of the pieces before it and the initial one.
struct EnterParameters {
  Sizes sizes;
  int state = 0;
  const Span* spans = nullptr;
  const float* partials = nullptr;
  const float* through = nullptr;
  const float* initial_state = nullptr;
  float* entering = nullptr;  ///< (segments, units, 64 N) fp32 in fragment order
  int columns = kPart;        ///< as of columns_of
};
cudaError_t launch_enter(const EnterParameters& parameters, cudaStream_t stream);

struct ScanParameters {
  Sizes sizes;
  int state = 0;
  CUtensorMap x;   ///< tiles of xbc, kScanUnits a box
  CUtensorMap bc;  ///< tiles of xbc, N / 64 a box
  const float* records = nullptr;
  const Span* spans = nullptr;
  const float* entering = nullptr;  ///< as of EnterParameters
  const float* through = nullptr;   ///< as of StatesDirection, for total_decay
  const void* d = nullptr;
  bool bf16_parameters = false;
  CUtensorMap y;  ///< boxes of kWarpRows x 64
  float* final_state = nullptr;
  float* total_decay = nullptr;
  int columns = kPart;  ///< as of columns_of
};
cudaError_t launch_scan(const ScanParameters& parameters, cudaStream_t stream);

/// Of units that are whole heads: where units cut heads, `sizes` counts heads of kColumns as units.
struct GradientParameters {
  Sizes sizes;
  int state = 0;
  CUtensorMap x;   ///< tiles of xbc, one a box
  CUtensorMap dy;  ///< tiles of dy, one a box
  CUtensorMap bc;  ///< tiles of xbc, N / 64 a box
  const float* records = nullptr;
  const Span* spans = nullptr;
  const void* states = nullptr;  ///< images of the state and of its adjoint
  const void* adjoints = nullptr;
  const float* scales = nullptr;  ///< what an element of each is a multiple of
  const void* a_log = nullptr;
  const void* d = nullptr;
  bool bf16_parameters = false;
  CUtensorMap dxbc;  ///< boxes of kWarpRows x 64
  float dt_min = 0, dt_max = 0;
  void* ddt_raw = nullptr;  ///< written here when a head is one unit, else left to finish
  std::int64_t ddt_stride = 0;
  float* dstep = nullptr;  ///< (units, chunks * 64): gradient of dt, this unit's share, else
  float* sums = nullptr;   ///< (chunks, units, 4): sums of dt da, of dy x, of ddt_raw; unused
  int columns = kPart;     ///< as of columns_of
  // Of the columns beyond 64 of heads that units cut; there x and dy have (head, token, column).
  CUtensorMap x_rest;
  CUtensorMap dy_rest;
  CUtensorMap dx;       ///< boxes of kWarpRows x 64 of dxbc
  CUtensorMap dx_rest;  ///< boxes of kWarpRows x kStrip of it
};
cudaError_t launch_gradient(const GradientParameters& parameters, cudaStream_t stream);

struct FinishParameters {
  Sizes sizes;
  const void* dt_raw = nullptr;
  std::int64_t dt_stride = 0;
  const void* a_log = nullptr;
  const void* dt_bias = nullptr;
  float dt_min = 0, dt_max = 0;
  bool bf16_parameters = false;
  const float* dstep = nullptr;
  float* sums = nullptr;
  void* ddt_raw = nullptr;
  std::int64_t ddt_stride = 0;
  float* da_log = nullptr;
  float* dd = nullptr;
  float* ddt_bias = nullptr;
  bool accumulate = false;
};
cudaError_t launch_finish(const FinishParameters& parameters, cudaStream_t stream);

// The scan without its first launches, for a caller that makes what those make while it makes xbc
// (kernels/conv_scan). Shapes, operands and errors are those of ssd_cuda.hpp.

/// Where in the forward's workspace the first launches leave their results.
struct ForwardRoom {
  Sizes sizes;                ///< with the segments that the scan works in, each of one piece
  float* records = nullptr;   ///< as of PrepareParameters
  Span* spans = nullptr;      ///< as of PrepareParameters
  float* partials = nullptr;  ///< as of StatesDirection
  float* through = nullptr;   ///< as of StatesDirection
};
ForwardRoom forward_room(const SsdCudaShape& shape, void* workspace);

/// ssd_cuda_forward from records, spans and states of pieces, `sizes` says of which, that are
/// already in the workspace.
void forward_from_states(const SsdCudaShape& shape, const Sizes& sizes, const SsdCudaForward& args,
                         cudaStream_t stream);

/// The same for the backward.
struct BackwardRoom {
  Sizes sizes;
  float* records = nullptr;
  Span* spans = nullptr;
};
BackwardRoom backward_room(const SsdCudaShape& shape, void* workspace);

/// ssd_cuda_backward from records and spans that are already in the workspace. dxbc may be xbc
/// itself: a tile of it is written by the block that alone reads that tile, after it did.
void backward_from_records(const SsdCudaShape& shape, const SsdCudaBackward& args,
                           cudaStream_t stream);

}  // namespace stowage::kernels::ssd
