#pragma once

#include <cstddef>
#include <cstdint>

/// What the scratch of products depends on; host code, so that plans need no GPU.
namespace stowage::kernels {

namespace grouped {
constexpr int kTallWidth = 128;  ///< of the narrowest tiles, those that end an expert
}

/// Bytes of scratch of fc2's gradient: a partial sum of every row in each tile of columns, of which
/// the row weights' gradients are made. The contents need not survive or be cleared.
constexpr std::size_t grouped_cuda_fc2_workspace_bytes(std::int64_t rows, std::int64_t columns) {
  const std::int64_t tiles = (columns + grouped::kTallWidth - 1) / grouped::kTallWidth;
  return static_cast<std::size_t>(tiles * rows) * sizeof(float);
}

}  // namespace stowage::kernels
