#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string_view>

namespace stowage::ctest {

/// The seed of a test's random values, which it prints. It is the same in every run, so that a
/// suite that passed passes again; the environment's STOWAGE_TEST_SEED gives another number, or
/// "random" for a fresh one.
inline std::uint64_t seed() {
  const char* given = std::getenv("STOWAGE_TEST_SEED");
  std::uint64_t value = 1234;
  if (given)
    value = given == std::string_view("random") ? std::random_device{}()
                                                : std::strtoull(given, nullptr, 10);
  std::cout << "STOWAGE_TEST_SEED=" << value << '\n';
  return value;
}

}  // namespace stowage::ctest
