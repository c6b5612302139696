#pragma once

#include "kernels/ssd/ssd_launch.hpp"

/// The launch of convolve.cu: a plain struct between conv_scan_cuda.cpp (checks, tensor maps,
/// workspace) and the kernel.
namespace stowage::kernels::conv_scan {

inline constexpr int kHalo = 3;  ///< rows before a chunk that its convolution reads

/// Whether a block's tiles fit: its four units, B, and a tile of C, of which the blocks of a group
/// must have them all.
constexpr bool served(int group_units, int state) {
  return (group_units + ssd::kScanUnits - 1) / ssd::kScanUnits >= state / 64;
}

struct ConvolveParameters {
  ssd::PrepareParameters steps;  ///< dt, where records and spans go; a block has one segment
  int state = 0;
  int width = 0;                 ///< taps of the convolution: 2, 3 or 4
  CUtensorMap in;                ///< boxes of 64 x 64 of the rows before the convolution, swizzled
  CUtensorMap halo;              ///< boxes of kHalo x 64 of the same, plain
  CUtensorMap out;               ///< boxes of 64 x 64 of xbc, swizzled
  const void* weight = nullptr;  ///< (C, width)
  const void* bias = nullptr;    ///< (C)
  int piece_chunks = 0;          ///< chunks of a piece; divides those of a segment
  float* partials = nullptr;     ///< states at the far edges of pieces, or nullptr for none
  float* through = nullptr;      ///< (pieces, heads), as in ssd::StatesDirection
  int columns = ssd::kPart;      ///< as of ssd::columns_of
};
cudaError_t launch_convolve(const ConvolveParameters& parameters, cudaStream_t stream);

}  // namespace stowage::kernels::conv_scan
