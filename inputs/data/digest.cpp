#include "inputs/data/digest.hpp"

#include <algorithm>
#include <vector>

#include "inputs/deck/xxh64.hpp"

namespace stowage::inputs {
namespace {

constexpr std::int64_t kBlock = 1 << 16;  // tokens
constexpr std::int64_t kBlocks = 256;

}  // namespace

std::string digest(const TokenSource& source) {
  Xxh64 hash;
  const std::span<const std::int64_t> offsets = source.document_offsets();
  hash.update(std::as_bytes(offsets));  // the last one is the length
  const std::int64_t tokens = source.tokens();
  const std::int64_t blocks = std::min((tokens + kBlock - 1) / kBlock, kBlocks);
  std::vector<std::int32_t> block(static_cast<std::size_t>(std::min(tokens, kBlock)));
  std::vector<std::uint8_t> mask(block.size());
  const std::int64_t last = tokens - static_cast<std::int64_t>(block.size());  // where it starts
  for (std::int64_t i = 0; i < blocks; ++i) {
    const double share = blocks == 1 ? 0 : static_cast<double>(i) / static_cast<double>(blocks - 1);
    const std::int64_t first =
        std::min(last, static_cast<std::int64_t>(share * static_cast<double>(last)));
    source.read(first, block);
    hash.update(std::as_bytes(std::span<const std::int32_t>(block)));
    if (!source.masked()) continue;
    source.read_mask(first, mask);
    hash.update(std::as_bytes(std::span<const std::uint8_t>(mask)));
  }
  return hash.hex();
}

}  // namespace stowage::inputs
