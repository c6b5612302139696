#pragma once

#include <algorithm>
#include <numeric>
#include <utility>

#include "ctest/inputs/support.hpp"
#include "inputs/data/loader.hpp"

namespace stowage::inputs::testing {

/// Tokens 0, 1, 2, …: a token tells its place. Documents end at the given offsets. Every token is
/// predicted, or those whose mask is 1.
class CountingSource final : public TokenSource {
 public:
  explicit CountingSource(std::vector<std::int64_t> offsets, std::vector<std::uint8_t> mask = {})
      : offsets_(std::move(offsets)), mask_(std::move(mask)) {}
  std::int64_t tokens() const override { return offsets_.back(); }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    ASSERT_LE(first + std::ssize(out), tokens());
    std::iota(out.begin(), out.end(), static_cast<std::int32_t>(first));
  }
  bool masked() const override { return !mask_.empty(); }
  void read_mask(std::int64_t first, std::span<std::uint8_t> out) const override {
    if (!masked()) return TokenSource::read_mask(first, out);
    ASSERT_LE(first + std::ssize(out), tokens());
    std::copy_n(mask_.begin() + first, out.size(), out.begin());
  }
  std::string description() const override { return "counting"; }
  std::vector<std::string> files() const override { return {}; }

 private:
  std::vector<std::int64_t> offsets_;
  std::vector<std::uint8_t> mask_;
};

/// Documents of 1 to 25 tokens, one behind the other, of which a mask leaves some half.
inline CountingSource random_documents(std::uint64_t seed, std::int64_t tokens,
                                       bool masked = false) {
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> offsets = {0};
  while (offsets.back() < tokens) {
    offsets.push_back(
        std::min(tokens, offsets.back() + 1 + static_cast<std::int64_t>(random() % 25)));
  }
  std::vector<std::uint8_t> mask(masked ? static_cast<std::size_t>(tokens) : 0);
  for (std::uint8_t& predicted : mask) predicted = static_cast<std::uint8_t>(random() % 2);
  return CountingSource(std::move(offsets), std::move(mask));
}

/// A filled microbatch, in memory that was poisoned first.
struct Filling {
  std::vector<std::int32_t> tokens, targets, cu_seqlens, sources;
  Filled filled;

  Filling(const Loader& loader, std::int64_t m, std::int64_t n, std::int64_t capacity)
      : tokens(static_cast<std::size_t>(n), -9),
        targets(static_cast<std::size_t>(n), -9),
        cu_seqlens(static_cast<std::size_t>(capacity + 1), -9),
        sources(static_cast<std::size_t>(n), -9) {
    filled = loader.fill(m, {tokens, targets, cu_seqlens, sources});
  }
};

}  // namespace stowage::inputs::testing
