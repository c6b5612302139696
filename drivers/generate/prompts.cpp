#include "drivers/generate/prompts.hpp"

#include <fmt/ranges.h>

#include <charconv>
#include <sstream>

#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "inputs/data/data_section.hpp"
#include "inputs/deck/value.hpp"
#include "inputs/huggingface/folder_file.hpp"

namespace stowage::drivers {
namespace {

using execution::throw_usage;
using inputs::SourceKind;

constexpr std::int32_t kBytes = 256;  ///< tokens of a text

void add_lines(std::vector<Prompt>& prompts, const std::string& path) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
  std::istringstream lines(inputs::huggingface::read_text(path, kMostBytes));
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);)
    prompts.push_back({fmt::format("--prompt-file {}: line {}", path, ++number), line, {}});
  if (number == 0) throw_usage("--prompt-file {}: is empty; allowed: a prompt a line", path);
}

std::vector<std::int32_t> bytes_of(const Prompt& prompt, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens;
  for (const char character : prompt.text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= vocabulary)
      throw_usage(
          "{}: byte {} at offset {} is not in the vocabulary; allowed: below "
          "model.vocab_size = {}",
          prompt.from, byte, tokens.size(), vocabulary);
    tokens.push_back(byte);
  }
  return tokens;
}

std::vector<std::int32_t> ids_of(const Prompt& prompt, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens;
  std::istringstream words(prompt.text);
  for (std::string word; words >> word;) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= vocabulary)
      throw_usage(
          "{}: '{}': the deck's data are token ids of a tokenizer that is not known here; "
          "allowed: ids from 0 to {} (model.vocab_size), with spaces between; bytes are "
          "those of data.source = \"text\"",
          prompt.from, execution::printable(word), vocabulary - 1);
    tokens.push_back(id);
  }
  return tokens;
}

}  // namespace

TextForm text_form(const inputs::Deck& deck) {
  const auto data = inputs::read<inputs::DataConfig>(deck);
  SourceKind kind = data.source;
  if (kind == SourceKind::automatic)
    kind = inputs::detect_source(data.mix.empty() ? data.path
                                                  : inputs::named_path(data.mix.front()).path);
  return kind == SourceKind::text ? TextForm::bytes : TextForm::ids;
}

std::vector<Prompt> read_prompts(const std::vector<std::string>& texts, const std::string& file,
                                 TextForm form, std::int64_t vocabulary) {
  std::vector<Prompt> prompts;
  for (const std::string& text : texts)
    prompts.push_back({fmt::format("--prompt {}", prompts.size() + 1), text, {}});
  if (!file.empty()) add_lines(prompts, file);
  if (prompts.empty())
    throw_usage("no prompt: give --prompt TEXT, once or more, or --prompt-file FILE");
  for (Prompt& prompt : prompts) {
    if (!inputs::is_utf8(prompt.text))
      throw_usage("{}: is not UTF-8, which prompts must be", prompt.from);
    prompt.tokens =
        form == TextForm::bytes ? bytes_of(prompt, vocabulary) : ids_of(prompt, vocabulary);
    if (prompt.tokens.empty()) throw_usage("{}: is empty; allowed: a token or more", prompt.from);
  }
  return prompts;
}

std::string text_of(std::span<const std::int32_t> tokens, TextForm form) {
  if (form == TextForm::ids) return fmt::format("{}", fmt::join(tokens, " "));
  std::string text, bytes;
  for (const std::int32_t token : tokens) {
    if (token < kBytes) {
      bytes += static_cast<char>(token);
      continue;
    }
    text += execution::printable_lines(bytes) + fmt::format("<{}>", token);  // no byte
    bytes.clear();
  }
  return text + execution::printable_lines(bytes);
}

}  // namespace stowage::drivers
