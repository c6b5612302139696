#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/conv1d/conv1d_launch.hpp"

/// How the convolution's kernels share out tokens and channels, on which their scratch depends;
/// host code, so that plans need no GPU.
namespace stowage::kernels::conv1d {

inline constexpr int kStrip = 64;  ///< tokens of a warp
inline constexpr int kWarps = 8;   ///< of a block, along the tokens: 512 tokens
inline constexpr int kSums = 5;    ///< dw of four taps, if there are so many or not, db

/// Blocks of the forward along the tokens.
inline std::int64_t token_blocks(const Conv1dCudaShape& shape) {
  return (shape.tokens + kStrip * kWarps - 1) / (kStrip * kWarps);
}

/// The backward's shares: a warp takes a range of tokens of 128 channels.
inline constexpr int kWarpChannels = 128;
inline constexpr int kRangeStep = 6;          ///< ranges are multiples; the bits depend on it
inline constexpr int kLeastRows = 72;         ///< of a range
inline constexpr int kMultiprocessors = 132;  ///< H100, H200; fixed, as the bits depend on it

constexpr int channel_warps(int channels) { return (channels + kWarpChannels - 1) / kWarpChannels; }
/// Blocks along the channels, of `block_warps` warps each.
constexpr int channel_blocks(const Conv1dCudaShape& shape) {
  return (channel_warps(shape.channels) + kWarps - 1) / kWarps;
}
constexpr int block_warps(const Conv1dCudaShape& shape) {
  return (channel_warps(shape.channels) + channel_blocks(shape) - 1) / channel_blocks(shape);
}
/// Tokens of a range, such that two blocks an SM take all at once.
inline int range_rows(const Conv1dCudaShape& shape) {
  const int fit = std::max(1, kMultiprocessors * 2 / channel_blocks(shape));
  const auto rows = static_cast<int>((shape.tokens + fit - 1) / fit);
  return std::max((rows + kRangeStep - 1) / kRangeStep * kRangeStep, kLeastRows);
}
/// Ranges, each with one partial sum a channel.
inline std::int64_t ranges(const Conv1dCudaShape& shape) {
  return (shape.tokens + range_rows(shape) - 1) / range_rows(shape);
}

/// Parts of the simple kernels, each with one partial sum a channel.
inline std::int64_t strips(const Conv1dCudaShape& shape) {
  return (shape.tokens + kStrip - 1) / kStrip;
}

/// Bytes of scratch of the vector kernels' backward.
inline std::size_t workspace_bytes(const Conv1dCudaShape& shape) {
  return static_cast<std::size_t>(ranges(shape) * kSums * shape.channels) * sizeof(float);
}

}  // namespace stowage::kernels::conv1d
