#pragma once

#include <algorithm>
#include <cstdint>

namespace stowage::kernels {

/// Rows whose logits exist at once: about 8 M logits, few enough for a cache, many enough for the
/// products to be efficient.
constexpr std::int64_t cross_entropy_chunk(std::int64_t tokens, std::int64_t vocabulary) {
  constexpr std::int64_t kLogits = std::int64_t{1} << 23;
  const std::int64_t rows = kLogits / std::max<std::int64_t>(vocabulary, 1);
  return std::min(tokens, std::clamp<std::int64_t>(rows, 128, 1024));
}

}  // namespace stowage::kernels
