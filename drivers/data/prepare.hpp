#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stowage::drivers {

/// What `stowage_data prepare` was asked for.
struct PrepareOptions {
  std::vector<std::string> inputs;  ///< JSON lines, compressed or not; "-": standard input
  std::string prefix;               ///< writes PREFIX.bin, PREFIX.idx and, of pairs, PREFIX.mask
  std::string tokenizer = "bytes";  ///< "bytes", or "ids": the lines hold tokens already
  std::int64_t vocab_size = 256;
  std::int64_t append_token = -1;  ///< ends each document, and is predicted; -1: none
};

/// Turns JSON lines into Megatron's indexed data set, a document a line.
///
/// A line has "text", or "prompt" and "response": then PREFIX.mask is written, 0 for a prompt and 1
/// for a response. With tokenizer "ids" the values are lists of tokens, else strings of which each
/// byte is a token. All lines are of one kind; lines without a token are left out and counted.
///
/// @return what was written, for people
/// Throws a usage error that names file and line for anything else, and if an output exists
/// already: nothing is left half written.
std::string prepare(const PrepareOptions& options);

}  // namespace stowage::drivers
