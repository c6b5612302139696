#pragma once

#include <cstdint>

namespace stowage::inputs {

/// Element `index` of a random permutation of [0, size), keyed by (seed, epoch), without storage.
///
/// A Feistel network of Philox rounds on the smallest even number of bits that holds size, walked
/// until it lands inside (J. Black, P. Rogaway, "Ciphers with arbitrary finite domains", CT-RSA
/// 2002, section 3): fewer than four evaluations on average.
std::int64_t permuted(std::uint64_t seed, std::int64_t epoch, std::int64_t size,
                      std::int64_t index);

}  // namespace stowage::inputs
