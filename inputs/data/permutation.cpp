#include "inputs/data/permutation.hpp"

#include <bit>
#include <limits>

#include "execution/philox.hpp"

namespace stowage::inputs {

namespace {

constexpr std::uint64_t kOrder = execution::stream_of("inputs/loader/order");
constexpr std::uint64_t kRounds = 4;  // M. Luby, C. Rackoff: four make a strong permutation

}  // namespace

std::int64_t permuted(std::uint64_t seed, std::int64_t epoch, std::int64_t size,
                      std::int64_t index) {
  if (size <= 1) return 0;
  const int bits = std::numeric_limits<std::uint64_t>::digits -
                   std::countl_zero(static_cast<std::uint64_t>(size - 1));
  const int half_bits = (bits + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  const std::uint64_t stream = kOrder + static_cast<std::uint64_t>(epoch);
  auto value = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = value >> half_bits, right = value & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = execution::random_bits(seed, stream, (right << 3) | round);
      const std::uint64_t next = left ^ (mixed & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= static_cast<std::uint64_t>(size));
  return static_cast<std::int64_t>(value);
}

}  // namespace stowage::inputs
