#include "inputs/huggingface/names.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "execution/error.hpp"

namespace stowage::inputs::huggingface {

using execution::throw_usage;

namespace {

/// A name of ours taken apart: "layers.3.attn.qkv.weight" is layer 3, "attn.qkv.weight".
struct LayerName {
  int layer = -1;  ///< -1: outside of layers
  std::string_view rest;
};

LayerName take_apart(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return {-1, name};
  LayerName parts;
  const char* first = name.data() + kLayers.size();
  const char* last = name.data() + name.size();
  const auto [at, error] = std::from_chars(first, last, parts.layer);
  STOWAGE_ASSERT(error == std::errc() && at != last && *at == '.', "tensor name {}", name);
  parts.rest = name.substr(static_cast<std::size_t>(at + 1 - name.data()));
  return parts;
}

void replace(std::string& text, std::string_view what, std::string_view by) {
  const std::size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), by);
}

const NameRow* find_row(const Family& family, char letter, std::string_view rest) {
  for (const NameRow& row : family.names) {
    const bool fits =
        letter == 0 ? row.letters.empty() : row.letters.find(letter) != std::string_view::npos;
    if (fits && row.ours == rest) return &row;
  }
  return nullptr;
}

std::int64_t product(const std::vector<std::int64_t>& shape, std::size_t from) {
  std::int64_t elements = 1;
  for (std::size_t d = from; d < shape.size(); ++d) elements *= shape[d];
  return elements;
}

/// Rows that each of the row's tensors has of our `rows`.
std::vector<std::int64_t> rows_of(const NameRow& row, const ModelSizes& sizes, std::int64_t rows) {
  if (row.form == Form::query_key_value)
    return {sizes.query_width, sizes.key_width, sizes.key_width};
  const auto parts = std::ssize(row.theirs);
  STOWAGE_ASSERT(rows % parts == 0, "{} rows of {} in {} parts", rows, row.ours, parts);
  return std::vector<std::int64_t>(row.theirs.size(), rows / parts);
}

/// The whole name of one of theirs.
std::string full_name(const Family& family, std::string_view pattern, const LayerName& ours,
                      std::string_view theirs, std::string_view trunk) {
  if (ours.layer < 0) {
    std::string name(theirs);
    replace(name, "{trunk}", trunk);
    return name;
  }
  const std::size_t letters = std::max<std::size_t>(1, family.block.size());
  STOWAGE_ASSERT(static_cast<std::size_t>(ours.layer) < pattern.size(), "layer {} of {}",
                 ours.layer, pattern);
  return fmt::format("{}layers.{}.{}", trunk, static_cast<std::size_t>(ours.layer) / letters,
                     theirs);
}

}  // namespace

std::vector<Piece> pieces(const Family& family, const ModelSizes& sizes, std::string_view name,
                          const std::vector<std::int64_t>& shape, std::string_view trunk) {
  const std::string pattern = without_cuts(sizes.pattern);
  const LayerName ours = take_apart(name);
  const char letter = ours.layer < 0 ? '\0' : pattern.at(static_cast<std::size_t>(ours.layer));
  const NameRow* row = find_row(family, letter, ours.rest);
  if (row == nullptr)
    throw_usage("a model of the family {} has no tensor '{}'", family.model_type, name);
  if (row->form == Form::absent) return {};
  const bool experts = row->theirs[0].find("{e}") != std::string_view::npos;
  const std::size_t first = experts ? 1 : 0;  // the dimension of rows
  const std::vector<std::int64_t> rows = rows_of(*row, sizes, shape[first]);
  std::vector<Piece> all;
  std::int64_t at = 0;
  for (std::int64_t expert = 0; expert < (experts ? shape[0] : 1); ++expert)
    for (std::size_t part = 0; part < row->theirs.size(); ++part) {
      Piece piece;
      piece.name = full_name(family, pattern, ours, row->theirs[part], trunk);
      replace(piece.name, "{e}", std::to_string(expert));
      piece.shape.assign(shape.begin() + static_cast<std::ptrdiff_t>(first), shape.end());
      piece.shape[0] = rows[part];
      piece.elements = product(piece.shape, 0);
      if (row->form == Form::convolution) piece.shape.insert(piece.shape.begin() + 1, 1);
      piece.begin = at;
      at += piece.elements;
      all.push_back(std::move(piece));
    }
  STOWAGE_ASSERT(at == product(shape, 0), "{} pieces of {} have {} elements of {}", all.size(),
                 name, at, product(shape, 0));
  return all;
}

bool is_left_out(const Family& family, std::string_view name) {
  return std::any_of(family.left_out.begin(), family.left_out.end(),
                     [&](std::string_view end) { return name.ends_with(end); });
}

std::int64_t blocks_of(const Family& family, std::string_view pattern, std::string_view origin) {
  const std::string letters = without_cuts(pattern);
  const std::string_view block = family.block;
  bool repeats = !letters.empty() && letters.size() % block.size() == 0;
  for (std::size_t i = 0; i < letters.size(); ++i)
    repeats = repeats && letters[i] == block[i % block.size()];
  if (!repeats)
    throw_usage("{}: the pattern is not '{}' again and again, as the family {} has it", origin,
                block, family.model_type);
  return std::ssize(letters) / std::ssize(block);
}

std::string without_cuts(std::string_view pattern) {
  std::string letters(pattern);
  std::erase(letters, '|');
  return letters;
}

}  // namespace stowage::inputs::huggingface
