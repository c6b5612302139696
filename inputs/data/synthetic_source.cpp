// Random tokens without a file: the stream of benchmarks.
#include <fmt/core.h>

#include <algorithm>

#include "execution/philox.hpp"
#include "inputs/data/formats.hpp"

namespace stowage::inputs::detail {

namespace {

constexpr std::uint64_t kTokens = execution::stream_of("inputs/synthetic/tokens");
constexpr std::uint64_t kLengths = execution::stream_of("inputs/synthetic/lengths");

class SyntheticSource final : public TokenSource {
 public:
  explicit SyntheticSource(const SourceOptions& options)
      : seed_(options.seed), vocab_size_(static_cast<std::uint32_t>(options.vocab_size)) {
    const std::int64_t tokens = options.synthetic_tokens;
    const std::int64_t mean = options.synthetic_document_length;
    const auto& lengths = options.synthetic_lengths;
    // Uniform over the lengths, or in [1, 2 * mean), whose mean is `mean`.
    const auto width = static_cast<std::uint32_t>(
        lengths.empty() ? std::min<std::int64_t>(2 * mean - 1, tokens) : std::ssize(lengths));
    const auto drawn = [&](std::uint64_t document) -> std::int64_t {
      const auto block = execution::philox(seed_, kLengths, document);
      const auto index = execution::scale_to(block.word[0], width);
      return lengths.empty() ? 1 + index : lengths[index];
    };
    offsets_ = {0};
    while ((mean > 0 || !lengths.empty()) && offsets_.back() < tokens) {
      offsets_.push_back(std::min(offsets_.back() + drawn(offsets_.size()), tokens));
    }
    if (offsets_.back() == 0) offsets_.push_back(tokens);
  }

  std::int64_t tokens() const override { return offsets_.back(); }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }

  /// Four tokens a block: token i is word i % 4 of block i / 4.
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    auto at = static_cast<std::uint64_t>(first);
    for (std::size_t i = 0; i < out.size();) {
      const execution::PhiloxBlock block = execution::philox(seed_, kTokens, at / 4);
      for (; i < out.size(); ++i) {
        out[i] = static_cast<std::int32_t>(execution::scale_to(block.word[at % 4], vocab_size_));
        if (++at % 4 == 0) {
          ++i;
          break;
        }
      }
    }
  }

  std::string description() const override { return fmt::format("synthetic, seed {}", seed_); }
  std::vector<std::string> files() const override { return {}; }

 private:
  std::uint64_t seed_;
  std::uint32_t vocab_size_;
  std::vector<std::int64_t> offsets_;
};

}  // namespace

std::unique_ptr<TokenSource> open_synthetic(const SourceOptions& options) {
  return std::make_unique<SyntheticSource>(options);
}

}  // namespace stowage::inputs::detail
