// Any source with a loss mask beside it.
#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "execution/error.hpp"
#include "inputs/data/formats.hpp"
#include "inputs/data/mapped_file.hpp"
#include "inputs/data/token_file.hpp"

namespace stowage::inputs {

void TokenSource::read_mask(std::int64_t, std::span<std::uint8_t> out) const {
  std::ranges::fill(out, std::uint8_t{1});
}

namespace detail {

namespace {

using execution::throw_usage;

class MaskedSource final : public TokenSource {
 public:
  MaskedSource(std::unique_ptr<TokenSource> source, const std::string& path)
      : source_(std::move(source)), file_(path) {
    if (file_.size() != source_->tokens()) {
      throw_usage("mask file '{}': {} bytes, but {} has {} tokens: a mask is one byte a token",
                  path, file_.size(), source_->description(), source_->tokens());
    }
    if (file_.size() <= kCheckedTokens && !any_target())
      throw_usage("mask file '{}': no byte of it is 1, so nothing would be learned", path);
  }

  std::int64_t tokens() const override { return source_->tokens(); }
  std::span<const std::int64_t> document_offsets() const override {
    return source_->document_offsets();
  }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    source_->read(first, out);
  }
  bool knows_documents() const override { return source_->knows_documents(); }
  bool masked() const override { return true; }
  void read_mask(std::int64_t first, std::span<std::uint8_t> out) const override {
    file_.read_into(first, std::as_writable_bytes(out));
    const auto bad = std::ranges::find_if(out, [](std::uint8_t bit) { return bit > 1; });
    if (bad == out.end()) return;
    throw_usage(
        "mask file '{}': value {} at byte offset {}: 1 is a token to predict, 0 one to read",
        file_.path(), *bad, first + (bad - out.begin()));
  }
  std::string description() const override {
    return fmt::format("{}, masked", source_->description());
  }
  std::vector<std::string> files() const override {
    std::vector<std::string> all = source_->files();
    all.push_back(file_.path());
    return all;
  }

 private:
  /// Checks every byte; is one of them 1?
  bool any_target() const {
    std::vector<std::uint8_t> part(1 << 16);
    bool any = false;
    for (std::int64_t first = 0; first < file_.size(); first += std::ssize(part)) {
      part.resize(static_cast<std::size_t>(std::min(std::ssize(part), file_.size() - first)));
      read_mask(first, part);
      any = any || std::ranges::find(part, std::uint8_t{1}) != part.end();
    }
    return any;
  }

  std::unique_ptr<TokenSource> source_;
  MappedFile file_;
};

}  // namespace

std::unique_ptr<TokenSource> with_mask(std::unique_ptr<TokenSource> source,
                                       const std::string& path) {
  return std::make_unique<MaskedSource>(std::move(source), path);
}

}  // namespace detail

}  // namespace stowage::inputs
