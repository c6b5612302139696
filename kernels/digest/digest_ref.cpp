#include <algorithm>
#include <cstring>

#include "kernels/digest/digest.hpp"
#include "kernels/digest/functor.hpp"

namespace stowage::kernels {

void digest_ref(const DigestPart& part, execution::Dtype dtype, std::int64_t count,
                const void* data, std::uint64_t sums[2]) {
  const std::size_t size = std::min<std::size_t>(execution::size_bytes(dtype), 4);
  const auto words = static_cast<std::int64_t>(execution::size_bytes(dtype) / size);
  const auto* bytes = static_cast<const std::byte*>(data);
  for (std::int64_t l = 0; l < count; ++l) {
    for (std::int64_t word = 0; word < words; ++word) {
      std::uint32_t bits = 0;  // little-endian: the low bytes come first
      std::memcpy(&bits, bytes + static_cast<std::size_t>(l * words + word) * size, size);
      const std::int64_t at = part.index(l) * words + word;
      for (int half = 0; half < 2; ++half)
        sums[half] += (std::uint64_t{bits} + 1) *
                      detail::lane_factor(half, static_cast<int>(at % 8)) *
                      detail::block_factor(detail::digest_key(part.stream, dtype, half), at / 8);
    }
  }
}

}  // namespace stowage::kernels
