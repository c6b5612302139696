#pragma once

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>

/// Damage to bytes, for tests that feed readers with it.
namespace stowage::ctest {

/// Rounds of a test with random damage: some hundreds, or STOWAGE_FUZZ_ROUNDS.
inline int fuzz_rounds() {
  const char* given = std::getenv("STOWAGE_FUZZ_ROUNDS");
  return given == nullptr ? 500 : std::atoi(given);
}

/// The same bytes with one to four changes: a flipped bit, a random or an extreme run, a piece
/// that is cut out, doubled or cut off, or a number in digits that no one expects.
inline std::string mutated(std::string bytes, std::mt19937_64& random) {
  const auto below = [&](std::size_t end) { return end == 0 ? 0 : random() % end; };
  static const char* const kNumbers[] = {
      "-1", "0", "4294967300", "9223372036854775808", "1e400", "nan", "\xff\xfe", "\"", "[[", "}"};
  for (std::size_t change = 0; change <= below(4); ++change) {
    const std::size_t at = below(bytes.size());
    const std::size_t length = std::min(bytes.size() - at, 1 + below(16));
    switch (below(7)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        for (std::size_t i = 0; i < length; ++i) bytes[at + i] = static_cast<char>(random());
        break;
      case 2:
        bytes.replace(at, length, length, below(2) == 0 ? '\0' : '\xff');
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(64)));
        break;
      case 5:
        bytes.resize(at);
        break;
      default:
        bytes.replace(at, length, kNumbers[below(std::size(kNumbers))]);
    }
  }
  return bytes;
}

}  // namespace stowage::ctest
