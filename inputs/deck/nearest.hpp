#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace stowage::inputs {

/// Edits (insert, delete, replace, swap of neighbours) that turn one word into another: the
/// restricted Damerau-Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The word with the fewest edits to `given`; the first of several. Empty if there are no words.
std::string_view nearest(std::string_view given, std::span<const std::string_view> words);

}  // namespace stowage::inputs
