#pragma once

#include <string>
#include <string_view>

#include "inputs/deck/registry.hpp"

namespace stowage::inputs {

/// All keys by section, one line each with type, default and first sentence: the tail of --help.
std::string help_keys();

/// Everything about one key, or about a section if `key` names one. Throws a usage error with the
/// nearest key if there is no such.
std::string help_key(std::string_view key);

/// The page docs/reference/deck.md, in Markdown.
std::string reference_page();

/// "an integer in [1, inf)", "one of "fp32", "bf16"": what a key accepts.
std::string accepts(const Parameter& parameter);

}  // namespace stowage::inputs
