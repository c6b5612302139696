#include "inputs/huggingface/names.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>

#include "execution/error.hpp"

namespace stowage::inputs::huggingface {

using execution::throw_usage;

namespace {

/// A name of ours taken apart: "layers.3.attn.qkv.weight" is layer 3, "attn.qkv.weight".
struct LayerName {
  int layer = -1;  ///< -1: outside of layers
  std::string_view rest;
  /// "mtp.layers.1.norm.weight" is layer 1 of the blocks that predict further tokens, and
  /// "mtp.0.final_norm.weight" is "mtp.final_norm.weight" of block 0, which is no layer.
  bool further = false;
  int block = -1;
};

/// The number that a name begins with, and what follows its dot.
std::pair<int, std::string_view> take_number(std::string_view name, std::string_view whole) {
  int number = -1;
  const char* last = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data(), last, number);
  STOWAGE_ASSERT(error == std::errc() && at != last && *at == '.', "tensor name {}", whole);
  return {number, name.substr(static_cast<std::size_t>(at + 1 - name.data()))};
}

LayerName take_apart(std::string_view name) {
  constexpr std::string_view kLayers = "layers.", kFurther = "mtp.";
  LayerName parts{.rest = name};
  if (name.starts_with(kFurther)) {
    parts.further = true;
    parts.rest.remove_prefix(kFurther.size());
  }
  if (parts.rest.starts_with(kLayers))
    std::tie(parts.layer, parts.rest) = take_number(parts.rest.substr(kLayers.size()), name);
  else if (parts.further)
    std::tie(parts.block, parts.rest) = take_number(parts.rest, name);
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

/// Neighbouring rows of one of theirs.
struct Run {
  std::size_t part;
  std::int64_t first, rows;
};

/// Our rows in order, and how many each of the row's tensors has, which may be more than are ours.
struct Rows {
  std::vector<Run> runs;
  std::vector<std::int64_t> of_part;

  void add(std::size_t part, std::int64_t first, std::int64_t rows) {
    runs.push_back({part, first, rows});
  }
};

/// Whole parts, one behind the other.
Rows whole(std::vector<std::int64_t> rows) {
  Rows all{{}, std::move(rows)};
  for (std::size_t part = 0; part < all.of_part.size(); ++part) all.add(part, 0, all.of_part[part]);
  return all;
}

/// Of the first part, which has query and gate of each head in turn, the one or the other.
void add_of_heads(Rows& all, const ModelSizes& sizes, bool gate) {
  const std::int64_t dim = sizes.head_dim;
  for (std::int64_t row = 0; row < sizes.query_width; row += dim)
    all.add(0, 2 * row + (gate ? dim : 0), dim);
}

/// [z | q | k | v | b | a] of parts that have, for each key head, q, k, v and z; b and a.
Rows delta_heads(const ModelSizes::Delta& delta) {
  const std::int64_t heads = delta.key_heads, key = delta.key_head_dim;
  const std::int64_t group = delta.value_heads / std::max<std::int64_t>(1, heads);
  const std::int64_t value = group * delta.value_head_dim;  // rows of a key head
  Rows all{{}, {heads * 2 * (key + value), 2 * delta.value_heads}};
  const auto add = [&](std::size_t part, std::int64_t stride, std::int64_t first,
                       std::int64_t rows) {
    for (std::int64_t head = 0; head < heads; ++head) all.add(part, head * stride + first, rows);
  };
  const std::int64_t stride = 2 * (key + value);
  add(0, stride, 2 * key + value, value);
  add(0, stride, 0, key);
  add(0, stride, key, key);
  add(0, stride, 2 * key, value);
  add(1, 2 * group, 0, group);
  add(1, 2 * group, group, group);
  return all;
}

/// Where our `rows` lie.
Rows rows_of(const NameRow& row, const ModelSizes& sizes, std::int64_t rows) {
  const ModelSizes::Delta& delta = sizes.delta;
  switch (row.form) {
    case Form::query_key_value:
      return whole({sizes.query_width, sizes.key_width, sizes.key_width});
    case Form::gated_query_key_value: {
      Rows all{{}, {2 * sizes.query_width, sizes.key_width, sizes.key_width}};
      add_of_heads(all, sizes, false);
      all.add(1, 0, sizes.key_width);
      all.add(2, 0, sizes.key_width);
      return all;
    }
    case Form::query_gate: {
      Rows all{{}, {2 * sizes.query_width}};
      add_of_heads(all, sizes, true);
      return all;
    }
    case Form::delta_projection: {
      const std::int64_t values = delta.value_heads * delta.value_head_dim;
      return whole({values, 2 * delta.key_heads * delta.key_head_dim + values, delta.value_heads,
                    delta.value_heads});
    }
    case Form::delta_heads:
      return delta_heads(delta);
    case Form::left_columns:
    case Form::right_columns: {
      Rows all{{}, {2 * rows}};
      for (std::int64_t i = 0; i < rows; ++i)
        all.add(0, 2 * i + (row.form == Form::right_columns ? 1 : 0), 1);
      return all;
    }
    case Form::stacked:
    case Form::convolution:
    case Form::absent:
      break;
  }
  const auto parts = std::ssize(row.theirs);
  STOWAGE_ASSERT(rows % parts == 0, "{} rows of {} in {} parts", rows, row.ours, parts);
  return whole(std::vector<std::int64_t>(row.theirs.size(), rows / parts));
}

/// The whole name of one of theirs.
std::string full_name(const Family& family, std::string_view pattern, const LayerName& ours,
                      std::string_view theirs, std::string_view trunk) {
  if (ours.layer < 0) {
    std::string name(theirs);
    const int layers = static_cast<int>(pattern.size()), first = ours.block * layers;
    const auto layer = [&](int number) {
      return fmt::format("{}layers.{}.", family.further, number);
    };
    replace(name, "{trunk}", trunk);
    replace(name, "{first}", layer(first));
    replace(name, "{last}", layer(first + layers - 1));
    return name;
  }
  if (ours.further) return fmt::format("{}layers.{}.{}", family.further, ours.layer, theirs);
  STOWAGE_ASSERT(static_cast<std::size_t>(ours.layer) < pattern.size(), "layer {} of {}",
                 ours.layer, pattern);
  return fmt::format("{}layers.{}.{}", trunk,
                     static_cast<std::size_t>(ours.layer) / family.letters(), theirs);
}

}  // namespace

std::vector<Piece> pieces(const Family& family, const ModelSizes& sizes, std::string_view name,
                          const std::vector<std::int64_t>& shape, std::string_view trunk) {
  const LayerName ours = take_apart(name);
  const std::string pattern = ours.further ? sizes.further_pattern : without_cuts(sizes.pattern);
  const auto layer = static_cast<std::size_t>(ours.layer);
  const char letter =
      ours.layer < 0 ? '\0' : pattern.at(ours.further ? layer % pattern.size() : layer);
  const NameRow* row = find_row(
      family, letter, ours.block < 0 ? std::string(ours.rest) : fmt::format("mtp.{}", ours.rest));
  if (row == nullptr || (ours.further && family.further.empty()))
    throw_usage("a model of the family {} has no tensor '{}'", family.model_type, name);
  if (row->form == Form::absent) return {};
  const bool experts = row->theirs[0].find("{e}") != std::string_view::npos;
  const std::size_t first = experts ? 1 : 0;  // the dimension of rows
  const Rows rows = rows_of(*row, sizes, shape[first]);
  const std::int64_t width = product(shape, first + 1);
  std::vector<Piece> all;
  std::int64_t at = 0;
  for (std::int64_t expert = 0; expert < (experts ? shape[0] : 1); ++expert)
    for (const Run& run : rows.runs) {
      Piece piece;
      piece.name = full_name(family, pattern, ours, row->theirs[run.part], trunk);
      replace(piece.name, "{e}", std::to_string(expert));
      piece.shape.assign(shape.begin() + static_cast<std::ptrdiff_t>(first), shape.end());
      piece.shape[0] = rows.of_part[run.part];
      piece.elements = run.rows * width;
      piece.their_begin = run.first * width;
      if (row->form == Form::left_columns || row->form == Form::right_columns)
        piece.shape = {shape[0], 2 * shape[1]};
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
  return std::any_of(family.left_out.begin(), family.left_out.end(), [&](std::string_view part) {
    return part.ends_with('*') ? name.starts_with(part.substr(0, part.size() - 1))
                               : name.ends_with(part);
  });
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

std::string periodic_pattern(const Family& family, std::int64_t layers, std::int64_t period) {
  std::string pattern;
  for (std::int64_t layer = 1; layer <= layers; ++layer)
    pattern += (layer % period == 0 ? family.words.back() : family.words.front()).ours;
  return pattern;
}

std::string without_cuts(std::string_view pattern) {
  std::string letters(pattern);
  std::erase(letters, '|');
  return letters;
}

}  // namespace stowage::inputs::huggingface
