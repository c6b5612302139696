// Plain text, one token a byte; a document is a chapter.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "execution/error.hpp"
#include "inputs/data/file_form.hpp"
#include "inputs/data/formats.hpp"
#include "inputs/data/mapped_file.hpp"
#include "inputs/data/token_file.hpp"

namespace stowage::inputs::detail {

namespace {

/// "Genesis 1", "1 Samuel 12", "Song of Solomon 8": a book, whose name may start with a digit, and
/// a chapter.
bool is_heading(std::string_view line) {
  const std::size_t space = line.rfind(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == line.size()) return false;
  for (const char c : line.substr(space + 1)) {
    if (!std::isdigit(static_cast<unsigned char>(c))) return false;
  }
  std::string_view book = line.substr(0, space);
  if (book.size() > 2 && std::isdigit(static_cast<unsigned char>(book[0])) && book[1] == ' ') {
    book.remove_prefix(2);
  }
  if (!std::isupper(static_cast<unsigned char>(book[0])) || book.back() == ' ') return false;
  for (const char c : book) {
    if (!std::isalpha(static_cast<unsigned char>(c)) && c != ' ') return false;
  }
  return true;
}

/// Where chapters start: at a heading between blank lines. What comes before the first heading
/// belongs to the first chapter; a text without headings is one document.
std::vector<std::int64_t> chapters(std::string_view text) {
  std::vector<std::int64_t> offsets = {0};
  bool blank_before = true, first = true;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const bool blank_after = end + 1 >= text.size() || text[end + 1] == '\n';
    if (blank_before && blank_after && is_heading(text.substr(begin, end - begin))) {
      if (!first) offsets.push_back(static_cast<std::int64_t>(begin));
      first = false;
    }
    blank_before = begin == end;
    begin = end + 1;
  }
  offsets.push_back(static_cast<std::int64_t>(text.size()));
  return offsets;
}

class TextSource final : public TokenSource {
 public:
  TextSource(const std::string& path, std::int64_t vocab_size)
      : file_(path), bytes_(file_, 0, TokenWidth::byte, vocab_size) {
    require_text(file_);
    if (file_.size() <= kCheckedTokens) bytes_.check(file_.size());
    offsets_ = chapters(text_of(file_));
  }

  std::int64_t tokens() const override { return file_.size(); }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    bytes_.read(first, out);
  }
  std::string description() const override { return fmt::format("text {}", file_.path()); }
  std::vector<std::string> files() const override { return {file_.path()}; }

 private:
  MappedFile file_;
  TokenArray bytes_;
  std::vector<std::int64_t> offsets_;
};

}  // namespace

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size())};
}

void require_text(const MappedFile& file) {
  const FileForm* form = foreign_form(text_of(file));
  if (form == nullptr) return;
  execution::throw_usage("data file '{}': {} data, not text: {}{}", file.path(), form->name,
                         how_to_prepare(*form, file.path()),
                         form->unpack.empty() ? "" : " if it holds JSON lines, else unpack it");
}

std::unique_ptr<TokenSource> open_text(const SourceOptions& options) {
  return std::make_unique<TextSource>(options.path, options.vocab_size);
}

}  // namespace stowage::inputs::detail
