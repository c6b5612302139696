#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/huggingface/family.hpp"

namespace stowage::inputs::huggingface {

/// What names and shapes depend on beside a tensor's own shape.
struct ModelSizes {
  std::string pattern;               ///< one letter a layer; cuts | do not count
  std::string further_pattern = {};  ///< of a block that predicts further tokens
  std::int64_t query_width = 0;      ///< rows of the query projection: heads * head_dim
  std::int64_t key_width = 0;        ///< of the key projection, and of the value's
  std::int64_t head_dim = 0;         ///< rows of a head of them
  /// Of gated DeltaNet.
  struct Delta {
    std::int64_t key_heads = 0, value_heads = 0, key_head_dim = 0, value_head_dim = 0;
  } delta = {};
};

/// Consecutive elements of a tensor of theirs, and of one of ours.
struct Piece {
  std::string name;
  std::vector<std::int64_t> shape;  ///< of theirs, whole
  std::int64_t begin = 0;           ///< its first element in our tensor
  std::int64_t elements = 0;
  std::int64_t their_begin = 0;  ///< and in theirs
};

/// Our tensor as a family's files have it, in the order in which its elements lie.
///
/// No piece at all: files do not have it, and all its elements are zero.
/// @param name of ours, such as "layers.3.attn.qkv.weight"
/// @param trunk how names of the trunk begin: one of family.trunks
/// @throws Error (exit 2) if the family has no such tensor
std::vector<Piece> pieces(const Family& family, const ModelSizes& sizes, std::string_view name,
                          const std::vector<std::int64_t>& shape, std::string_view trunk);

/// True for a tensor of theirs that is no weight of the model here.
bool is_left_out(const Family& family, std::string_view name);

/// A pattern of the family's blocks: "*-*-" of 2. @throws Error (exit 2), naming `origin`, if the
/// pattern is no repetition of the block
std::int64_t blocks_of(const Family& family, std::string_view pattern, std::string_view origin);

/// The pattern of so many layers of theirs of which every `period`-th is the family's last word and
/// all others are its first.
std::string periodic_pattern(const Family& family, std::int64_t layers, std::int64_t period);

/// A pattern without its cuts.
std::string without_cuts(std::string_view pattern);

}  // namespace stowage::inputs::huggingface
