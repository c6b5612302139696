#include "execution/printable.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

namespace stowage::execution {
namespace {

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

/// Bytes of the printable character at the start of `text`; 0: its first byte is to be escaped.
std::size_t character_bytes(std::string_view text) {
  const unsigned char lead = byte_at(text, 0);
  if (lead < 0x80) return lead < 0x20 || lead == 0x7f ? 0 : 1;
  const std::size_t bytes = lead < 0xc2   ? 0
                            : lead < 0xe0 ? 2
                            : lead < 0xf0 ? 3
                            : lead < 0xf5 ? 4
                                          : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i)
    if ((byte_at(text, i) & 0xc0) != 0x80) return 0;
  // Below these second bytes lie U+0080 to U+009F, and longer spellings of other characters.
  const int least = lead == 0xc2 || lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  return byte_at(text, 1) < least ? 0 : bytes;
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes =
        kept.find(text[0]) != std::string_view::npos ? 1 : character_bytes(text);
    if (bytes == 0)
      out += fmt::format("\\x{:02x}", byte_at(text, 0));
    else
      out += text.substr(0, bytes);
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, {}); }

std::string printable_lines(std::string_view text) { return escaped(text, "\n\t"); }

void print_remark(std::string_view line) {
  const std::string text = printable(line) + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace stowage::execution
