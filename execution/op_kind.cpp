#include "execution/op_kind.hpp"

#include <algorithm>

namespace stowage::execution {
namespace {

bool is_digit(char c) { return '0' <= c && c <= '9'; }

/// Takes away `before`, digits, and `after`, if the name begins so.
void drop_numbered(std::string_view& name, std::string_view before, char after) {
  if (!name.starts_with(before)) return;
  const auto* end = std::find_if_not(name.begin() + before.size(), name.end(), is_digit);
  if (end == name.begin() + before.size() || end == name.end() || *end != after) return;
  name.remove_prefix(static_cast<std::size_t>(end - name.begin()) + 1);
}

}  // namespace

std::string_view op_kind(std::string_view name) {
  drop_numbered(name, "mb", '/');
  drop_numbered(name, "layers.", '.');
  const std::size_t slash = name.rfind('/');
  if (slash == std::string_view::npos || slash + 1 == name.size()) return name;
  const std::string_view last = name.substr(slash + 1);
  const bool is_parameter = last.find('.') != std::string_view::npos;
  if (is_parameter || std::ranges::all_of(last, is_digit)) name = name.substr(0, slash);
  return name;
}

}  // namespace stowage::execution
