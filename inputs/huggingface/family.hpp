#pragma once

#include <span>
#include <string_view>
#include <vector>

/// What a family of published models calls the tensors and sizes of ours: tables, one family a
/// file (`<model_type>.cpp`), read in both directions by names.hpp and config.hpp.
namespace stowage::inputs::huggingface {

/// How a tensor of ours is made of theirs: bytes are copied, never computed.
enum class Form : unsigned char {
  stacked,                ///< equal parts, one behind the other (one part: the same tensor)
  convolution,            ///< the same bytes; theirs has (C, 1, W) for (C, W)
  query_key_value,        ///< three parts, as many rows as query, key and value have
  gated_query_key_value,  ///< the same; for each head the first one has rows of query, then of gate
  query_gate,             ///< the rows of gates of that first part
  delta_projection,       ///< four parts: z, [q k v], b, a
  delta_heads,    ///< two parts: for each key head q, k, and v and z of its value heads; b and a
  left_columns,   ///< of rows twice as wide, the first half
  right_columns,  ///< and the other one
  absent          ///< not in their files: zero here
};

/// Tensors of ours and theirs.
struct NameRow {
  std::string_view letters;  ///< of the layers that have it; empty: outside of layers
  std::string_view ours;     ///< of a layer: what follows "layers.<i>."; of a block that predicts
                             ///< further tokens: "mtp." and what follows "mtp.<i>."
  std::vector<std::string_view>
      theirs;  ///< of a layer: what follows "<trunk>layers.<block>."; with
               ///< "{e}" one for every expert; "{trunk}" outside of layers; of a block that
               ///< predicts further tokens with "{first}" or "{last}", which layer of it has it
  Form form = Form::stacked;
};

/// How a key of config.json says what a key of a deck says.
enum class Meaning : unsigned char {
  same,        ///< a number, a flag, or a word that `words` translates
  positive,    ///< the same, of a number that must be above 0
  or_null,     ///< the same, of a number for which null says 0
  opposite,    ///< a flag that is true where ours is false
  fixed,       ///< must have the value of `fallback`: anything else is refused, and `help` says why
  ignored,     ///< decides nothing that is computed here or there
  ours_fixed,  ///< no key of theirs: the deck's key must have the value of `fallback`, which is not
               ///< its default
  pattern,     ///< one letter a layer, as a string or a list of the family's words
  period,      ///< where there is no list of words for `pattern`: of num_hidden_layers layers every
               ///< so many-th is the family's last word, all others are its first
  layers,      ///< number of blocks: the deck's pattern repeats the family's
  further,     ///< number of blocks that predict further tokens; 0: model.mtp_num_layers is 0
  further_pattern,  ///< where there are such blocks: the layers of one, as in `pattern`
  words,   ///< a list of the family's words, which says the pattern once more where it is there
  limits,  ///< two numbers [low, high], of the keys model.mamba_dt_min and _max
  rope,    ///< {"rope_theta": number, "rope_type": "default" or "llama3" with its four numbers},
           ///< or the older rope_theta and rope_scaling
  rotary_part  ///< partial_rotary_factor, in the object of the `rope` row or, older, outside
};

/// Keys of config.json and of a deck. A key of [model] that no row of a family has must be at its
/// default, unless it is one of training_keys().
struct ConfigRow {
  Meaning meaning = Meaning::same;
  std::vector<std::string_view> theirs;  ///< their key, then older names of it
  std::string_view ours = {};            ///< key of the deck
  std::string_view fallback =
      {};  ///< as Python's JSON: what counts where the key is missing or null;
           ///< empty: it must be there
  std::string_view letters = {};  ///< layers that it matters to; empty: all models
  std::string_view help = {};     ///< of a fixed key: what another value would need
};

/// A word of theirs and ours.
struct Word {
  std::string_view theirs;
  std::string_view ours;
};

/// A family: what config.json calls `model_type`.
struct Family {
  std::string_view model_type;
  std::string_view architecture;         ///< the class that config.json names
  std::vector<std::string_view> trunks;  ///< beginnings of names; the first one is written
  std::string_view block;                ///< letters of one of their layers: "M", "*-"; "":
                                         ///< as many as a word of `words` has
  std::vector<Word> words;               ///< of its layers, with our letters; of several for the
                                         ///< same letters the first is written
  std::vector<NameRow> names;
  std::vector<ConfigRow> config;
  std::string_view further = {};  ///< beginning of the names of tensors of blocks that predict
                                  ///< further tokens; empty: the family has none
  std::vector<std::string_view> left_out;  ///< tensors of no use here: ends of names, or beginnings
                                           ///< with a * behind them

  /// Layers of ours that one of theirs is.
  std::size_t letters() const {
    if (!block.empty()) return block.size();
    return words.empty() ? 1 : words.front().ours.size();
  }
};

/// All families, the one that can say most first.
std::span<const Family* const> families();

/// @throws Error (exit 2) that names `origin` and the families that are known
const Family& family_of(std::string_view model_type, std::string_view origin);

/// Words of activations, for all families.
std::span<const Word> words();

/// Words of train.dtype.
std::span<const Word> dtype_words();

/// What rope_type "llama3" needs, and keys of ours.
std::span<const Word> scaling_words();

/// Keys of [model] that decide how weights begin, how they are trained, or in what order sums are
/// made: a model's files fit whatever these are.
std::span<const std::string_view> training_keys();

/// The keys of [model] that a row says.
std::vector<std::string_view> keys_of(const ConfigRow& row);

/// Keys that every family may have and that decide nothing: how a model is stored and used.
std::span<const std::string_view> common_keys();

namespace detail {
/// Of Llama's kind of model, which others have too.
std::vector<NameRow> llama_names();
/// Of experts as all of Qwen name them, without a shared one.
std::vector<NameRow> qwen_expert_names();

extern const Family kNemotronH;
extern const Family kLlama;
extern const Family kMamba2;
extern const Family kQwen3;
extern const Family kQwen3Moe;
extern const Family kQwen3Next;
extern const Family kQwen35;
extern const Family kQwen35Moe;
}  // namespace detail

}  // namespace stowage::inputs::huggingface
