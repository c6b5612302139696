// Megatron-LM's indexed data set, as its preprocess_data writes it.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "execution/error.hpp"
#include "inputs/data/formats.hpp"
#include "inputs/data/mapped_file.hpp"
#include "inputs/data/token_file.hpp"

namespace stowage::inputs::detail {

namespace {

using execution::throw_usage;

constexpr std::int64_t kVersionAt = 9, kDtypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26,
                       kLengthsAt = 34;

TokenWidth token_width(std::uint8_t code, const std::string& path) {
  switch (code) {
    case 1:
      return TokenWidth::byte;
    case 4:
      return TokenWidth::int32;
    case 8:
      return TokenWidth::uint16;
    default:
      throw_usage(
          "data file '{}': dtype code {} at byte offset {}: known are 1 (uint8), 4 (int32), "
          "8 (uint16)",
          path, code, kDtypeAt);
  }
}

class MegatronSource final : public TokenSource {
 public:
  MegatronSource(const std::string& index_path, std::int64_t vocab_size)
      : index_(checked_index(index_path)),
        tokens_file_(index_path.substr(0, index_path.size() - 4) + ".bin"),
        width_(token_width(index_.read<std::uint8_t>(kDtypeAt), index_path)),
        tokens_(tokens_file_, 0, width_, vocab_size),
        sequences_(count(kSequencesAt)) {
    read_index();
    for (std::size_t s = 0; s + 1 < starts_.size() && starts_.back() <= kCheckedTokens; ++s) {
      TokenArray(tokens_file_, pointers_[s], width_, vocab_size).check(starts_[s + 1] - starts_[s]);
    }
  }

  std::int64_t tokens() const override { return starts_.back(); }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }

  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    auto s =
        static_cast<std::size_t>(std::ranges::upper_bound(starts_, first) - starts_.begin() - 1);
    while (!out.empty()) {
      const std::int64_t in_sequence = first - starts_[s];
      const auto part = static_cast<std::size_t>(
          std::min(starts_[s + 1] - first, static_cast<std::int64_t>(out.size())));
      tokens_.read(pointers_[s] / static_cast<std::int64_t>(width_) + in_sequence, out.first(part));
      out = out.subspan(part);
      first += static_cast<std::int64_t>(part);
      ++s;
    }
  }

  std::string description() const override {
    return fmt::format("Megatron {}", tokens_file_.path());
  }
  std::vector<std::string> files() const override { return {index_.path(), tokens_file_.path()}; }

 private:
  static MappedFile checked_index(const std::string& path) {
    MappedFile file(path);
    const auto magic = static_cast<std::int64_t>(kMegatronMagic.size());
    if (file.size() < magic || std::memcmp(file.data(), kMegatronMagic.data(), 9) != 0) {
      throw_usage(
          "data file '{}': wrong magic at byte offset 0: a Megatron index starts with "
          "MMIDIDX and two zero bytes",
          path);
    }
    if (const auto version = file.read<std::uint64_t>(kVersionAt); version != 1) {
      throw_usage("data file '{}': version {} at byte offset {}: only 1 is known", path, version,
                  kVersionAt);
    }
    return file;
  }

  std::int64_t count(std::int64_t offset) const {
    const auto value = index_.read<std::uint64_t>(offset);
    if (value == 0 || value > (std::uint64_t{1} << 40)) {
      throw_usage("data file '{}': count {} at byte offset {} cannot be", index_.path(), value,
                  offset);
    }
    return static_cast<std::int64_t>(value);
  }

  void read_index() {
    const std::int64_t documents = count(kDocumentsAt);  // with the leading 0
    const std::int64_t pointers_at = kLengthsAt + 4 * sequences_;
    const std::int64_t documents_at = pointers_at + 8 * sequences_;
    index_.require(documents_at + 8 * documents);
    starts_ = {0};
    for (std::int64_t s = 0; s < sequences_; ++s) {
      const auto length = index_.read<std::int32_t>(kLengthsAt + 4 * s);
      const auto pointer = index_.read<std::int64_t>(pointers_at + 8 * s);
      if (length < 0 || pointer < 0 || pointer % static_cast<std::int64_t>(width_) != 0) {
        throw_usage("data file '{}': sequence {} (byte offset {}) has length {} and position {}",
                    index_.path(), s, kLengthsAt + 4 * s, length, pointer);
      }
      tokens_file_.require(pointer);
      tokens_file_.require(pointer + length * static_cast<std::int64_t>(width_));
      pointers_.push_back(pointer);
      starts_.push_back(starts_.back() + length);
    }
    for (std::int64_t d = 0; d < documents; ++d) {
      const auto sequence = index_.read<std::int64_t>(documents_at + 8 * d);
      if (sequence < 0 || sequence > sequences_ || (d == 0 && sequence != 0)) {
        throw_usage("data file '{}': document bound {} at byte offset {}: there are {} sequences",
                    index_.path(), sequence, documents_at + 8 * d, sequences_);
      }
      add_bound(starts_[sequence], documents_at + 8 * d);
    }
    add_bound(starts_.back(), documents_at);
    if (offsets_.size() < 2) throw_usage("data file '{}': no tokens", index_.path());
  }

  void add_bound(std::int64_t bound, std::int64_t at) {
    if (!offsets_.empty() && bound == offsets_.back()) return;  // an empty document
    if (!offsets_.empty() && bound < offsets_.back()) {
      throw_usage("data file '{}': document bounds do not ascend at byte offset {}", index_.path(),
                  at);
    }
    offsets_.push_back(bound);
  }

  MappedFile index_;
  MappedFile tokens_file_;
  TokenWidth width_;
  TokenArray tokens_;
  std::int64_t sequences_;
  std::vector<std::int64_t> starts_;    // token at which a sequence starts, and the end
  std::vector<std::int64_t> pointers_;  // its byte offset in the .bin
  std::vector<std::int64_t> offsets_;   // of documents
};

}  // namespace

std::string megatron_index_path(const std::string& path) {
  if (path.ends_with(".idx")) return path;
  return (path.ends_with(".bin") ? path.substr(0, path.size() - 4) : path) + ".idx";
}

std::unique_ptr<TokenSource> open_megatron(const SourceOptions& options) {
  return std::make_unique<MegatronSource>(megatron_index_path(options.path), options.vocab_size);
}

}  // namespace stowage::inputs::detail
