#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/huggingface/family.hpp"

namespace stowage::inputs::huggingface {

/// What names and shapes depend on beside a tensor's own shape.
struct ModelSizes {
  std::string pattern;           ///< one letter a layer; cuts | do not count
  std::int64_t query_width = 0;  ///< rows of the query projection: heads * head_dim
  std::int64_t key_width = 0;    ///< of the key projection, and of the value's
};

/// One tensor of theirs: consecutive elements of one of ours.
struct Piece {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  ///< its first element in our tensor
  std::int64_t elements = 0;
};

/// Our tensor as a family's files have it, in the order in which its elements lie.
///
/// No piece at all: files do not have it, and all its elements are zero.
/// @param name of ours, such as "layers.3.attn.qkv.weight"
/// @param trunk how names of the trunk begin: one of family.trunks
/// @throws Error (exit 2) if the family has no such tensor
std::vector<Piece> pieces(const Family& family, const ModelSizes& sizes, std::string_view name,
                          const std::vector<std::int64_t>& shape, std::string_view trunk);

/// True for a tensor of theirs that is no weight.
bool is_left_out(const Family& family, std::string_view name);

/// A pattern of the family's blocks: "*-*-" of 2. @throws Error (exit 2), naming `origin`, if the
/// pattern is no repetition of the block
std::int64_t blocks_of(const Family& family, std::string_view pattern, std::string_view origin);

/// A pattern without its cuts.
std::string without_cuts(std::string_view pattern);

}  // namespace stowage::inputs::huggingface
