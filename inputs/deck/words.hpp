#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stowage::inputs {

/// The words between commas, without blanks around them; empty ones are left out.
std::vector<std::string> words(std::string_view list);

/// A finite number; nothing if the word is none, or more than one.
std::optional<double> number(std::string_view word);

/// Refuses words of an option that are not among those allowed, a word given twice, and none at
/// all. @throws Error (exit 2) that names the option and what is allowed
void require_words(std::string_view option, const std::vector<std::string>& given,
                   std::initializer_list<std::string_view> allowed);

}  // namespace stowage::inputs
