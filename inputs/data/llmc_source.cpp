// llm.c's token shards, as its dev/data scripts write them.
#include <fmt/core.h>

#include <algorithm>

#include "execution/error.hpp"
#include "inputs/data/formats.hpp"
#include "inputs/data/mapped_file.hpp"
#include "inputs/data/token_file.hpp"

namespace stowage::inputs::detail {

namespace {

using execution::throw_usage;

constexpr std::int64_t kHeaderBytes = 256 * 4;

struct Kind {
  std::int32_t magic, version;
  TokenWidth width;
  const char* tokens;
};
constexpr Kind kGpt2 = {20240520, 1, TokenWidth::uint16, "uint16"};
constexpr Kind kLlama3 = {20240801, 7, TokenWidth::int32, "uint32"};

Kind kind_of(const MappedFile& file) {
  const auto magic = file.read<std::int32_t>(0);
  if (!is_llmc(magic)) {
    throw_usage("data file '{}': wrong magic {} at byte offset 0: an llm.c shard has {}",
                file.path(), magic, kLlmcMagics);
  }
  const Kind& kind = magic == kGpt2.magic ? kGpt2 : kLlama3;
  if (const auto version = file.read<std::int32_t>(4); version != kind.version) {
    throw_usage("data file '{}': version {} at byte offset 4: only {} ({} tokens) is known",
                file.path(), version, kind.version, kind.tokens);
  }
  return kind;
}

class LlmcSource final : public TokenSource {
 public:
  explicit LlmcSource(const SourceOptions& options)
      : file_(options.path),
        width_(kind_of(file_).width),
        tokens_(file_, kHeaderBytes, width_, options.vocab_size, TokenSign::is_unsigned),
        count_(checked_count()),
        knows_documents_(options.document_token >= 0) {
    if (count_ <= kCheckedTokens) tokens_.check(count_);
    offsets_ = {0};
    if (knows_documents_) find_documents(options.document_token);
    offsets_.push_back(count_);
  }

  std::int64_t tokens() const override { return count_; }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }
  bool knows_documents() const override { return knows_documents_; }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    tokens_.read(first, out);
  }
  std::string description() const override { return fmt::format("llm.c {}", file_.path()); }
  std::vector<std::string> files() const override { return {file_.path()}; }

 private:
  std::int64_t checked_count() const {
    const std::string& path = file_.path();
    const auto count = file_.read<std::int32_t>(8);
    if (count <= 0) throw_usage("data file '{}': {} tokens at byte offset 8", path, count);
    file_.require(kHeaderBytes + static_cast<std::int64_t>(width_) * count);
    return count;
  }

  void find_documents(std::int64_t document_token) {
    std::vector<std::int32_t> part(1 << 16);
    const auto step = static_cast<std::int64_t>(part.size());
    for (std::int64_t first = 0; first < count_; first += step) {
      const auto size = static_cast<std::size_t>(std::min(step, count_ - first));
      read(first, std::span(part).first(size));
      for (std::size_t i = 0; i < size; ++i) {
        const std::int64_t at = first + static_cast<std::int64_t>(i);
        if (part[i] == document_token && at != 0) offsets_.push_back(at);
      }
    }
  }

  MappedFile file_;
  TokenWidth width_;
  TokenArray tokens_;
  std::int64_t count_;
  bool knows_documents_;
  std::vector<std::int64_t> offsets_;
};

}  // namespace

bool is_llmc(std::int32_t magic) { return magic == kGpt2.magic || magic == kLlama3.magic; }

std::unique_ptr<TokenSource> open_llmc(const SourceOptions& options) {
  return std::make_unique<LlmcSource>(options);
}

}  // namespace stowage::inputs::detail
