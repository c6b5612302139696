#include "drivers/data/prepare.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "drivers/data/unpacker.hpp"
#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "inputs/data/file_form.hpp"
#include "inputs/data/json_line.hpp"
#include "inputs/data/megatron_writer.hpp"
#include "results/part_file.hpp"

namespace stowage::drivers {
namespace {

using execution::throw_usage;
using nlohmann::json;

/// One document, with the mask that pairs and turns have.
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
    std::string why;
    const json value = inputs::parse_json_line(line, &why);
    if (value.is_discarded()) throw_usage("{}: not an object of JSON, {}", place, why);
    if (!value.is_object())
      throw_usage("{}: not an object of JSON, but of type {}", place, value.type_name());
    const std::vector<const json*> turns = turns_of(value, place);
    const bool masked = !value.contains("text");
    if (any_ && masked_ != masked)
      throw_usage("{}: lines with \"text\" do not mix with those of prompts or turns", place);
    masked_ = masked;
    any_ = true;
    std::uint8_t predicted = 0;
    for (std::size_t i = 0; i < turns.size(); ++i) {
      append(*turns[i], place, document.tokens);
      predicted = static_cast<std::uint8_t>(i % 2);
      if (masked) document.mask.resize(document.tokens.size(), predicted);
    }
    if (document.tokens.empty()) return;
    if (options_.append_token >= 0)
      document.tokens.push_back(static_cast<std::int32_t>(options_.append_token));
    if (masked) document.mask.resize(document.tokens.size(), predicted);
  }

  bool masked() const { return masked_; }

 private:
  /// What a line has, in order: of prompts and turns every second one is predicted.
  static std::vector<const json*> turns_of(const json& value, const std::string& place) {
    const int kinds = (value.contains("text") ? 1 : 0) + (value.contains("turns") ? 1 : 0) +
                      (value.contains("prompt") || value.contains("response") ? 1 : 0);
    if (kinds != 1 || value.contains("prompt") != value.contains("response"))
      throw_usage("{}: a line has \"text\", or \"prompt\" and \"response\", or \"turns\"{}", place,
                  kinds == 0 && value.contains("messages")
                      ? "; drivers/data/encode_bpe.py makes turns of \"messages\""
                      : "");
    if (value.contains("text")) return {&value["text"]};
    if (value.contains("prompt")) return {&value["prompt"], &value["response"]};
    if (!value["turns"].is_array()) throw_usage("{}: \"turns\" is no list", place);
    std::vector<const json*> turns;
    for (const json& turn : value["turns"]) turns.push_back(&turn);
    return turns;
  }

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
        throw_usage(
            "{}: {} is not a token below --vocab-size {}", place,
            token.is_number() ? token.dump() : fmt::format("a value of type {}", token.type_name()),
            options_.vocab_size);
      tokens.push_back(token.get<std::int32_t>());
    }
  }

  const PrepareOptions& options_;
  bool any_ = false, masked_ = false;  ///< a line was read; of which kind lines are
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

/// Bytes of a line at most: lists of tokens take some ten times as much while they are read.
constexpr std::size_t kLongestLine = std::size_t{64} << 20;

/// Lines of one input, "file:line" by "file:line".
class Lines {
 public:
  explicit Lines(const std::string& path) : path_(path) {
    if (path == "-") return;
    std::error_code none;
    const std::filesystem::file_status status = std::filesystem::status(path, none);
    if (std::filesystem::is_directory(status))
      throw_usage("'{}' is a directory: name the files in it", path);
    if (std::filesystem::is_character_file(status) || std::filesystem::is_block_file(status))
      throw_usage("'{}' is a device: allowed: files, FIFOs and - for standard input", path);
    // One below /dev, as of a process substitution, has its writer already.
    if (std::filesystem::is_fifo(status) && !path.starts_with("/dev/"))
      execution::print_remark(
          fmt::format("# '{}' is a FIFO: waits until a program writes into it", path));
    is_file_ = std::filesystem::is_regular_file(status);
    file_.open(path, std::ios::binary);
    if (!file_) throw_usage("'{}' cannot be read: {}", path, std::strerror(errno));
  }

  /// The next line that is not blank; false at the end.
  bool next(std::string& line) {
    while (read_line(line))
      if (line.find_first_not_of(" \t\r") != std::string::npos) return true;
    return false;
  }

  std::string place() const { return fmt::format("{}:{}", path_, number_); }

 private:
  bool read_line(std::string& line) {
    line.clear();
    for (bool any = false; !left_.empty() || fill(); any = true) {
      if (!any) ++number_;
      const std::size_t end = left_.find('\n');
      const std::string_view part = left_.substr(0, end);
      if (line.size() + part.size() > kLongestLine)
        throw_usage("{}: a line of more than {} MiB: a line holds one document", place(),
                    kLongestLine >> 20);
      line += part;
      left_.remove_prefix(std::min(part.size() + 1, left_.size()));
      if (end != std::string_view::npos) return true;
    }
    return !line.empty();
  }

  /// The next block; false at the end.
  bool fill() {
    block_.resize(std::size_t{1} << 20);
    left_ = std::string_view(block_).substr(0, read_block());
    if (number_ > 0) return !left_.empty();
    const inputs::FileForm* form = inputs::foreign_form(left_);
    if (form == nullptr) return !left_.empty();
    if (unpacker_)
      throw_usage("'{}': {} data in {} data, not JSON lines", path_, form->name,
                  unpacker_->form().name);
    if (!is_file_ || !Unpacker::knows(*form))
      throw_usage("'{}': {} data, not JSON lines: {}", path_, form->name,
                  inputs::how_to_prepare(*form, path_));
    unpacker_.emplace(path_, *form);
    return fill();
  }

  std::size_t read_block() {
    if (unpacker_) return unpacker_->read(block_);
    std::istream& in = path_ == "-" ? std::cin : file_;
    in.read(block_.data(), std::ssize(block_));
    if (in.bad())
      throw execution::Error(execution::Exit::runtime, fmt::format("{}: cannot be read on: {}",
                                                                   place(), std::strerror(errno)));
    return static_cast<std::size_t>(in.gcount());
  }

  std::string path_;
  std::ifstream file_;
  bool is_file_ = false;  ///< no FIFO, which cannot be read twice
  std::optional<Unpacker> unpacker_;
  std::string block_;
  std::string_view left_;  ///< of the block
  std::int64_t number_ = 0;
};

}  // namespace

std::string prepare(const PrepareOptions& options) {
  if (std::filesystem::path(options.prefix).filename().empty())
    throw_usage("--out '{}': the name of the files is missing", options.prefix);
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
    Lines lines(path);
    std::string line;
    while (lines.next(line)) {
      reader.read(line, lines.place(), document);
      if (document.tokens.empty()) {
        ++empty;
        continue;
      }
      for (const std::uint8_t bit : document.mask) targets += bit;
      outputs.writer(reader.masked(), options.vocab_size).add(document.tokens, document.mask);
    }
  }
  if (!outputs.any()) throw_usage("--out {}: no line holds a token", options.prefix);
  const inputs::MegatronWriter& writer = outputs.writer(reader.masked(), options.vocab_size);
  outputs.commit();
  std::string text = fmt::format("{}: {} documents, {} tokens", options.prefix, writer.documents(),
                                 writer.tokens());
  if (reader.masked()) text += fmt::format(", {} of them predicted", targets);
  if (empty > 0) text += fmt::format("; {} lines without a token left out", empty);
  return text + "\n";
}

}  // namespace stowage::drivers
