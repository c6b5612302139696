#include "drivers/data/prepare.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "execution/error.hpp"
#include "inputs/data/megatron_writer.hpp"
#include "results/part_file.hpp"

namespace stowage::drivers {
namespace {

using execution::throw_usage;
using nlohmann::json;

/// One document, with the mask that pairs have.
struct Document {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> mask;
};

/// Reads lines, and remembers of which kind they are.
class LineReader {
 public:
  explicit LineReader(const PrepareOptions& options) : options_(options) {}

  /// @param place "file:line", for messages
  void read(const std::string& line, const std::string& place, Document& document) {
    document.tokens.clear();
    document.mask.clear();
    const json value = json::parse(line, nullptr, false);
    if (value.is_discarded() || !value.is_object())
      throw_usage("{}: not an object of JSON: {}", place, line.substr(0, 60));
    const bool pair = value.contains("prompt") && value.contains("response");
    if (pair == value.contains("text"))
      throw_usage("{}: a line has \"text\", or \"prompt\" and \"response\"", place);
    if (pairs_.value_or(pair) != pair)
      throw_usage("{}: lines with \"text\" and lines with \"prompt\" do not mix", place);
    pairs_ = pair;
    if (!pair) {
      append(value["text"], place, document.tokens);
    } else {
      append(value["prompt"], place, document.tokens);
      document.mask.assign(document.tokens.size(), 0);
      append(value["response"], place, document.tokens);
    }
    if (document.tokens.empty()) return;
    if (options_.append_token >= 0)
      document.tokens.push_back(static_cast<std::int32_t>(options_.append_token));
    if (pair) document.mask.resize(document.tokens.size(), 1);
  }

  bool pairs() const { return pairs_.value_or(false); }

 private:
  void append(const json& value, const std::string& place, std::vector<std::int32_t>& tokens) {
    if (options_.tokenizer == "bytes") {
      if (!value.is_string())
        throw_usage("{}: the values must be strings for --tokenizer bytes", place);
      const auto& text = value.get_ref<const std::string&>();
      const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
      tokens.insert(tokens.end(), bytes, bytes + text.size());
      return;
    }
    if (!value.is_array()) throw_usage("{}: the values must be lists for --tokenizer ids", place);
    for (const json& token : value) {
      if (!token.is_number_integer() || token < 0 || token >= options_.vocab_size)
        throw_usage("{}: {} is not a token below --vocab-size {}", place, token.dump(),
                    options_.vocab_size);
      tokens.push_back(token.get<std::int32_t>());
    }
  }

  const PrepareOptions& options_;
  std::optional<bool> pairs_;
};

/// The files under construction; they get their names together, the index last.
class Outputs {
 public:
  explicit Outputs(const std::string& prefix) : prefix_(prefix) {
    for (const char* suffix : {".bin", ".idx", ".mask"})
      for (const char* state : {"", ".part"})
        if (const std::string path = prefix + suffix + state; std::filesystem::exists(path))
          throw_usage("--out {}: {} exists already; remove it or give another name", prefix, path);
  }

  inputs::MegatronWriter& writer(bool mask, std::int64_t vocab_size) {
    if (writer_) return *writer_;
    for (const char* suffix : {".bin", ".mask", ".idx"})
      if (mask || suffix != std::string_view(".mask"))
        parts_.push_back(
            std::make_unique<results::PartFile>(prefix_ + suffix, results::FileKind::token_data));
    writer_.emplace(parts_.front()->part().string(), parts_.back()->part().string(),
                    mask ? parts_[1]->part().string() : "", vocab_size);
    return *writer_;
  }

  void commit() {
    writer_->finish();
    for (const auto& part : parts_) part->commit();
  }
  bool any() const { return writer_.has_value(); }

 private:
  std::string prefix_;
  std::vector<std::unique_ptr<results::PartFile>> parts_;
  std::optional<inputs::MegatronWriter> writer_;
};

}  // namespace

std::string prepare(const PrepareOptions& options) {
  if (options.tokenizer != "bytes" && options.tokenizer != "ids")
    throw_usage("--tokenizer {}: allowed: bytes, ids", options.tokenizer);
  if (options.tokenizer == "bytes" && options.vocab_size < 256)
    throw_usage("--vocab-size {}: bytes need at least 256", options.vocab_size);
  if (options.append_token >= options.vocab_size)
    throw_usage("--append-token {} is not below --vocab-size {}", options.append_token,
                options.vocab_size);
  Outputs outputs(options.prefix);
  LineReader reader(options);
  Document document;
  std::int64_t empty = 0, targets = 0;
  for (const std::string& path : options.inputs) {
    std::ifstream file;
    if (path != "-") file.open(path, std::ios::binary);
    std::istream& in = path == "-" ? std::cin : file;
    if (!in) throw_usage("'{}' cannot be read", path);
    std::string line;
    for (std::int64_t number = 1; std::getline(in, line); ++number) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      reader.read(line, fmt::format("{}:{}", path, number), document);
      if (document.tokens.empty()) {
        ++empty;
        continue;
      }
      for (const std::uint8_t bit : document.mask) targets += bit;
      outputs.writer(reader.pairs(), options.vocab_size).add(document.tokens, document.mask);
    }
  }
  if (!outputs.any()) throw_usage("--out {}: no line holds a token", options.prefix);
  const inputs::MegatronWriter& writer = outputs.writer(reader.pairs(), options.vocab_size);
  outputs.commit();
  std::string text = fmt::format("{}: {} documents, {} tokens", options.prefix, writer.documents(),
                                 writer.tokens());
  if (reader.pairs()) text += fmt::format(", {} of them predicted", targets);
  if (empty > 0) text += fmt::format("; {} lines without a token left out", empty);
  return text + "\n";
}

}  // namespace stowage::drivers
