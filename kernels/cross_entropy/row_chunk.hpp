#pragma once

#include <algorithm>
#include <cstdint>

namespace stowage::kernels {

/// Rows whose logits exist at once on the host: about 8 M logits, few enough for a cache, many
/// enough for the products to be efficient.
constexpr std::int64_t cross_entropy_chunk(std::int64_t tokens, std::int64_t vocabulary) {
  constexpr std::int64_t kLogits = std::int64_t{1} << 23;
  const std::int64_t rows = kLogits / std::max<std::int64_t>(vocabulary, 1);
  return std::min(tokens, std::clamp<std::int64_t>(rows, 128, 1024));
}

/// The same on a GPU: up to 128 M logits. Each chunk reads and writes the whole gradient of the
/// weight, so few large chunks are faster; 2048 rows of 65536 logits fill every product's tiles.
/// Chunks are nearly equal, and multiples of 128 rows.
constexpr std::int64_t cross_entropy_device_chunk(std::int64_t tokens, std::int64_t vocabulary) {
  constexpr std::int64_t kLogits = std::int64_t{1} << 27, kGrain = 128;
  const std::int64_t most = std::max(
      kGrain, std::min<std::int64_t>(kLogits / std::max<std::int64_t>(vocabulary, 1), 4096) /
                  kGrain * kGrain);
  const std::int64_t chunks = std::max<std::int64_t>(1, (tokens + most - 1) / most);
  const std::int64_t rows = (tokens + chunks - 1) / chunks;
  return std::min(tokens, (rows + kGrain - 1) / kGrain * kGrain);
}

}  // namespace stowage::kernels
