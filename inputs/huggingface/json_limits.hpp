#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

/// Limits of the JSON in a model's folder. Somebody else wrote it: it may be made to exhaust the
/// stack, the memory or a terminal.
namespace stowage::inputs::huggingface::detail {

/// Lists and objects in one another. The files need 3 to 6; each level costs a reader stack.
inline constexpr int kMaxJsonDepth = 64;
/// Values of config.json. Its keys are kept in order, in a list that is searched for each of them:
/// this many cost seconds.
inline constexpr std::int64_t kMaxConfigValues = 65536;
/// Bytes of a tensor's name, and of other people's text in a message.
inline constexpr std::size_t kMaxNameBytes = 1024;
inline constexpr std::size_t kMaxShownBytes = 200;

/// Calls `visit(piece, is_string)` for every string of JSON, with its quotes, and for what lies
/// between two of them.
template <class Visit>
void visit_strings(std::string_view text, Visit&& visit) {
  for (std::size_t at = 0; at < text.size();) {
    const bool is_string = text[at] == '"';
    std::size_t end = text.find('"', at);
    if (is_string)
      for (end = at + 1; end < text.size() && text[end] != '"'; ++end)
        if (text[end] == '\\') ++end;
    end = end >= text.size() ? text.size() : end + (is_string ? 1 : 0);
    visit(text.substr(at, end - at), is_string);
    at = end;
  }
}

/// @throws Error (exit 2) that names `origin` if JSON is deeper than kMaxJsonDepth, or has more
/// commas, lists and objects than `most_values`
void require_shallow(std::string_view text, std::string_view origin,
                     std::int64_t most_values = std::numeric_limits<std::int64_t>::max());

/// @throws Error (exit 2) that names `origin` for a name that is too long or has control characters
void require_name(std::string_view name, std::string_view origin);

/// Other people's text in a message: printable, and not long.
std::string shown_text(std::string_view text);

}  // namespace stowage::inputs::huggingface::detail
