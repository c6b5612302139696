#include "inputs/huggingface/json_limits.hpp"

#include "execution/error.hpp"
#include "execution/printable.hpp"

namespace stowage::inputs::huggingface::detail {

using execution::throw_usage;

void require_shallow(std::string_view text, std::string_view origin, std::int64_t most_values) {
  int depth = 0;
  std::int64_t values = 0;
  visit_strings(text, [&](std::string_view piece, bool is_string) {
    if (is_string) return;
    for (const char c : piece) {
      if (c == '[' || c == '{') ++depth;
      if (c == '[' || c == '{' || c == ',') ++values;
      if (c == ']' || c == '}') --depth;
      if (depth > kMaxJsonDepth)
        throw_usage("{}: lists and objects lie more than {} deep in one another", origin,
                    kMaxJsonDepth);
      if (values > most_values)
        throw_usage("{}: lists, objects and commas are more than {}", origin, most_values);
    }
  });
}

void require_name(std::string_view name, std::string_view origin) {
  if (name.size() > kMaxNameBytes)
    throw_usage("{}: the name '{}' has {} bytes; allowed: {}", origin, shown_text(name),
                name.size(), kMaxNameBytes);
  if (const std::string text = execution::printable(name); text != name)
    throw_usage("{}: the name '{}' has control characters", origin, shown_text(name));
}

std::string shown_text(std::string_view text) {
  std::string start = execution::printable(text.substr(0, kMaxShownBytes));
  return text.size() > kMaxShownBytes ? start + " ..." : start;
}

}  // namespace stowage::inputs::huggingface::detail
