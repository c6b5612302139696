// Any source with a loss mask beside it.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

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
    if (file_.size() > kCheckedTokens) return;
    require_bits(0, file_.size());
    if (std::memchr(file_.data(), 1, static_cast<std::size_t>(file_.size())) == nullptr)
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
    if (out.empty()) return;
    require_bits(first, std::ssize(out));
    std::memcpy(out.data(), file_.data() + first, out.size());
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
  void require_bits(std::int64_t first, std::int64_t count) const {
    const std::span bytes(file_.data() + first, static_cast<std::size_t>(count));
    const auto bad = std::ranges::find_if(bytes, [](std::byte b) { return b > std::byte{1}; });
    if (bad == bytes.end()) return;
    throw_usage(
        "mask file '{}': value {} at byte offset {}: 1 is a token to predict, 0 one to read",
        file_.path(), static_cast<int>(*bad), first + (bad - bytes.begin()));
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
