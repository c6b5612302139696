// One digest for one stream of tokens: any token and any boundary counts.
#include "inputs/data/digest.hpp"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "inputs/deck/xxh64.hpp"

namespace stowage::inputs {
namespace {

class Tokens final : public TokenSource {
 public:
  Tokens(std::vector<std::int32_t> stream, std::vector<std::int64_t> offsets)
      : stream_(std::move(stream)), offsets_(std::move(offsets)) {}

  std::int64_t tokens() const override { return static_cast<std::int64_t>(stream_.size()); }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    std::copy_n(stream_.begin() + first, out.size(), out.begin());
  }
  std::string description() const override { return "tokens"; }
  std::vector<std::string> files() const override { return {}; }

 private:
  std::vector<std::int32_t> stream_;
  std::vector<std::int64_t> offsets_;
};

TEST(digest, every_token_and_boundary_counts) {
  for (const std::int64_t count : {1, 2, 65535, 65536, 65537, 200000}) {
    std::vector<std::int32_t> stream(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < stream.size(); ++i) stream[i] = static_cast<std::int32_t>(i % 97);
    const std::string whole = digest(Tokens(stream, {0, count}));
    EXPECT_EQ(whole, digest(Tokens(stream, {0, count})));
    for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
      auto changed = stream;
      changed[at] += 1;
      EXPECT_NE(digest(Tokens(changed, {0, count})), whole) << at << " of " << count;
    }
    if (count > 1) {
      EXPECT_NE(digest(Tokens(stream, {0, 1, count})), whole);
    }
  }
}

TEST(digest, a_short_stream_is_read_once) {
  const std::vector<std::int64_t> offsets = {0, 2, 3};
  const std::vector<std::int32_t> stream = {5, 6, 7};
  Xxh64 hash;
  hash.update(std::as_bytes(std::span(offsets)));
  hash.update(std::as_bytes(std::span(stream)));
  EXPECT_EQ(digest(Tokens(stream, offsets)), hash.hex());
}

TEST(digest, long_streams_are_sampled_from_end_to_end) {
  SourceOptions options{.kind = SourceKind::synthetic, .synthetic_tokens = 1 << 25};
  const auto stream = [&](std::uint64_t seed, std::int64_t tokens) {
    options.seed = seed;
    options.synthetic_tokens = tokens;
    return digest(*open_source(options));
  };
  EXPECT_NE(stream(1, 1 << 25), stream(2, 1 << 25));
  EXPECT_NE(stream(1, 1 << 25), stream(1, (1 << 25) + 1));
}

}  // namespace
}  // namespace stowage::inputs
