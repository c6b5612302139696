#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stowage::inputs {

/// What a name of Megatron-LM, Hugging Face, nanoGPT or torchtitan is called here, as the end of a
/// sentence: "write model.pattern: ..."; empty for a name that is in none of their lists.
/// @param key with or without a section, in any case, with - or _
std::string_view foreign_key(std::string_view key);

/// All names that foreign_key() translates, in lower case with _.
std::vector<std::string_view> foreign_keys();

/// What to write instead of a key that is not registered, or where to look: the end of a sentence.
std::string instead_of(std::string_view key);

}  // namespace stowage::inputs
