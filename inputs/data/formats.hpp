#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "inputs/data/mapped_file.hpp"
#include "inputs/data/token_source.hpp"

namespace stowage::inputs::detail {

// One opener a format; open.cpp chooses. All throw usage errors that name file and offset.

/// One token a byte; a document is a chapter under a heading such as "Genesis 1". Refuses
/// compressed files and others of a known binary format.
std::unique_ptr<TokenSource> open_text(const SourceOptions& options);

/// Megatron's indexed data set: PREFIX.idx (sizes, offsets, documents) and PREFIX.bin (tokens).
/// The path may be either of them or PREFIX. Tokens may be uint8, uint16 or int32.
std::unique_ptr<TokenSource> open_megatron(const SourceOptions& options);

/// A shard of llm.c: a header of 256 int32 (magic, version, tokens), then tokens. GPT-2's are
/// uint16 (magic 20240520, version 1), Llama 3's uint32 (20240801, version 7).
std::unique_ptr<TokenSource> open_llmc(const SourceOptions& options);

/// Uniform random tokens: token i is a function of (seed, i), and so are document lengths.
std::unique_ptr<TokenSource> open_synthetic(const SourceOptions& options);

/// A source with the loss mask in a file: a byte a token, 0 or 1, in the order of the stream.
std::unique_ptr<TokenSource> with_mask(std::unique_ptr<TokenSource> source,
                                       const std::string& path);

/// The .idx of a Megatron path: PREFIX, PREFIX.bin or PREFIX.idx.
std::string megatron_index_path(const std::string& path);

// Header of the .idx: magic (9), version u64, dtype code u8, sequences u64, documents u64; then
// int32 lengths, int64 byte offsets, and int64 document bounds in sequences, the first 0.
/// First bytes of a Megatron .idx, its terminating zeros included.
inline constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};
/// First int32 of the known llm.c shards, for messages.
inline constexpr std::string_view kLlmcMagics = "20240520 or 20240801";
/// True if it is the first int32 of an llm.c shard.
bool is_llmc(std::int32_t magic);

/// The bytes of a file as text.
std::string_view text_of(const MappedFile& file);
/// Throws a usage error with the command that prepares the data, if a file is compressed or of
/// another format that holds no plain text.
void require_text(const MappedFile& file);

}  // namespace stowage::inputs::detail
