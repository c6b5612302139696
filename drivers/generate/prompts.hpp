#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "inputs/deck/deck.hpp"

namespace stowage::drivers {

/// What the text of a prompt stands for, as the deck's data say: the bytes of a text, or token ids
/// of a tokenizer that is not known here.
enum class TextForm { bytes, ids };

/// @throws Error (exit 2) if data.source = "auto" and there is no file to tell it by
TextForm text_form(const inputs::Deck& deck);

/// A text to be continued.
struct Prompt {
  std::string from;  ///< "--prompt 2", "prompts.txt: line 3"
  std::string text;
  std::vector<std::int32_t> tokens;
};

/// The texts of --prompt, then the lines of --prompt-file, as tokens below `vocabulary`.
/// @param file empty: none
/// @throws Error (exit 2) if there is none, or one is empty, no UTF-8 or not in the vocabulary
std::vector<Prompt> read_prompts(const std::vector<std::string>& texts, const std::string& file,
                                 TextForm form, std::int64_t vocabulary);

/// Tokens as text for people: bytes that are no UTF-8, and control characters but line ends and
/// tabs, as "\x1b"; ids with spaces between.
std::string text_of(std::span<const std::int32_t> tokens, TextForm form);

}  // namespace stowage::drivers
