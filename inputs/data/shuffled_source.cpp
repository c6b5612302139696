#include "inputs/data/shuffled_source.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "execution/error.hpp"
#include "execution/philox.hpp"
#include "inputs/data/permutation.hpp"

namespace stowage::inputs {
namespace {

class ShuffledSource final : public TokenSource {
 public:
  ShuffledSource(const TokenSource& source, TokenRange range, std::uint64_t seed)
      : source_(source), offsets_{0} {
    const auto bounds = source.document_offsets();
    const std::int64_t first = std::ranges::upper_bound(bounds, range.begin) - bounds.begin() - 1;
    const std::int64_t end = std::ranges::lower_bound(bounds, range.end) - bounds.begin();
    const std::int64_t documents = std::max<std::int64_t>(end - first, 0);
    begins_.reserve(static_cast<std::size_t>(documents));
    offsets_.reserve(static_cast<std::size_t>(documents) + 1);
    const std::uint64_t order = seed ^ execution::stream_of("inputs/data/documents");
    for (std::int64_t i = 0; i < documents; ++i) {
      const auto d = static_cast<std::size_t>(first + permuted(order, 0, documents, i));
      begins_.push_back(std::max(bounds[d], range.begin));
      offsets_.push_back(offsets_.back() + std::min(bounds[d + 1], range.end) - begins_.back());
    }
  }

  std::int64_t tokens() const override { return offsets_.back(); }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    each_run(first, std::ssize(out), [&](std::int64_t from, std::int64_t at, std::int64_t count) {
      source_.read(from,
                   out.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)));
    });
  }
  bool masked() const override { return source_.masked(); }
  void read_mask(std::int64_t first, std::span<std::uint8_t> out) const override {
    each_run(first, std::ssize(out), [&](std::int64_t from, std::int64_t at, std::int64_t count) {
      source_.read_mask(from,
                        out.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)));
    });
  }
  std::string description() const override { return source_.description() + ", shuffled"; }
  std::vector<std::string> files() const override { return source_.files(); }

 private:
  /// Calls take(from, at, count) for runs of tokens [first, first + size) that are neighbours in
  /// the source: `count` of them from its token `from` on are the `at`-th of these and the next.
  template <class Take>
  void each_run(std::int64_t first, std::int64_t size, const Take& take) const {
    auto d =
        static_cast<std::size_t>(std::ranges::upper_bound(offsets_, first) - offsets_.begin()) - 1;
    for (std::int64_t at = 0; at < size; ++d) {
      STOWAGE_ASSERT(d < begins_.size(), "token {} of {}", first + at, tokens());
      const std::int64_t into = first + at - offsets_[d];
      const std::int64_t count = std::min(size - at, offsets_[d + 1] - offsets_[d] - into);
      if (count > 0) take(begins_[d] + into, at, count);
      at += count;
    }
  }

  const TokenSource& source_;
  std::vector<std::int64_t> begins_;   ///< of each document in the source
  std::vector<std::int64_t> offsets_;  ///< of each in this stream, and its end
};

}  // namespace

std::unique_ptr<TokenSource> shuffled(const TokenSource& source, TokenRange range,
                                      std::uint64_t seed) {
  if (!source.knows_documents())
    execution::throw_usage(
        "{}: where its documents end is not known, so they cannot be shuffled; give "
        "data.document_token, or data.shuffle_documents = false",
        source.description());
  return std::make_unique<ShuffledSource>(source, range, seed);
}

}  // namespace stowage::inputs
