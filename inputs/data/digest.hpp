#pragma once

#include <string>

#include "inputs/data/token_source.hpp"

namespace stowage::inputs {

/// What tells one stream of tokens from another, as 16 hexadecimal digits: its length, where its
/// documents start, its tokens, and their mask if they have one. Of streams above 16 Mi tokens, 256
/// blocks of 64 Ki that are spread over all of it stand for the rest: a change elsewhere is not
/// seen.
///
/// Throws what reading throws, as for a token that is not below the vocabulary.
std::string digest(const TokenSource& source);

}  // namespace stowage::inputs
