#pragma once

#include <fmt/ranges.h>

#include <string>
#include <vector>

namespace stowage::forecast {

/// Overrides of a deck as words of a shell: lists hold blanks and quotes.
inline std::string pasted(std::vector<std::string> overrides) {
  for (std::string& word : overrides)
    if (word.find_first_of(" \"[") != std::string::npos) word = fmt::format("'{}'", word);
  return fmt::format("{}", fmt::join(overrides, " "));
}

}  // namespace stowage::forecast
