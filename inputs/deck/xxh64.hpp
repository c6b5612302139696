#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stowage::inputs {

/// XXH64 with seed 0 of a stream of bytes (Y. Collet, "xxHash fast digest algorithm", v0.1.1): some
/// GB/s on one core. It finds damage, at a chance of 2^-64 to miss it; it does not resist an
/// attacker, for which there is Sha256.
class Xxh64 {
 public:
  void update(std::span<const std::byte> bytes);
  std::uint64_t value() const;  ///< of the bytes so far
  std::string hex() const;      ///< value() as 16 hexadecimal digits

 private:
  void mix(const std::byte* stripe);

  // Prime 1 + prime 2, prime 2, 0 and -prime 1, modulo 2^64.
  std::array<std::uint64_t, 4> lanes_ = {0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0,
                                         0x61C8864E7A143579};
  std::array<std::byte, 32> stripe_{};  ///< bytes that do not fill one yet
  std::uint64_t total_bytes_ = 0;
};

}  // namespace stowage::inputs
