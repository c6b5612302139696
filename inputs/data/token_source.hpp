#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stowage::inputs {

/// A stream of tokens cut into documents: what every data format looks like to the loader.
///
/// Const methods may be called from several threads.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// Tokens of the stream.
  virtual std::int64_t tokens() const = 0;

  /// Where documents start, ascending, first 0, and at the end tokens(): documents + 1 offsets.
  virtual std::span<const std::int64_t> document_offsets() const = 0;

  /// Copies tokens [first, first + out.size()). Throws a usage error (exit code 2) that names file
  /// and byte offset if one of them is not below the vocabulary the source was opened with.
  virtual void read(std::int64_t first, std::span<std::int32_t> out) const = 0;

  /// False if the format stores no documents and nothing said how to find them: the stream is then
  /// one document for want of knowledge.
  virtual bool knows_documents() const { return true; }

  /// True if there is a loss mask: some tokens may not be targets.
  virtual bool masked() const { return false; }

  /// For tokens [first, first + out.size()): 1 if the token is predicted, 0 if it is only read, as
  /// a prompt is. Without a mask all are 1.
  virtual void read_mask(std::int64_t first, std::span<std::uint8_t> out) const;

  /// What it is, for people: "text data/kjv.txt".
  virtual std::string description() const = 0;

  /// The files behind it, for the result set; empty for synthetic tokens.
  virtual std::vector<std::string> files() const = 0;

  std::int64_t documents() const {
    return static_cast<std::int64_t>(document_offsets().size()) - 1;
  }
};

/// Which format a file is in. automatic: by its magic (Megatron's .idx, llm.c's header), else text.
enum class SourceKind { automatic, text, megatron, llmc, synthetic };

/// The format of a file that `automatic` opens, by its magic. Throws a usage error for a missing
/// file and for one of no known format.
SourceKind detect_source(const std::string& path);

/// Whether the file mask_path(path) counts. automatic: if it is there.
enum class MaskUse { automatic, required, none };

/// Where the loss mask of a token file lies: beside it, with the suffix .mask in place of .bin or
/// .idx, or behind any other name.
std::string mask_path(const std::string& path);

/// What it takes to open a source; the keys of [data] and model.vocab_size.
struct SourceOptions {
  SourceKind kind = SourceKind::automatic;
  std::string path = {};
  std::int64_t vocab_size = 256;
  /// Token that starts a document in a format that stores no boundaries (llm.c: 50256); -1: none.
  std::int64_t document_token = -1;
  std::uint64_t seed = 1234;                         ///< of synthetic tokens
  std::int64_t synthetic_tokens = 1 << 24;           ///< length of a synthetic stream
  std::int64_t synthetic_document_length = 0;        ///< mean length; 0: the stream is one document
  std::vector<std::int64_t> synthetic_lengths = {};  ///< each document has one, if there are any
  MaskUse mask = MaskUse::automatic;
};

/// Opens a source and checks it: header, sizes, and each token id where the file is small enough
/// (64 Mi tokens); larger files are checked as they are read.
///
/// Throws a usage error (exit code 2) that names file and offset for a missing, empty or truncated
/// file, a wrong magic or version, a token id that is not below the vocabulary, and a mask that has
/// another length, another value than 0 and 1, or no 1.
std::unique_ptr<TokenSource> open_source(const SourceOptions& options);

/// A part of a stream: tokens [begin, end).
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
};

/// A stream cut in two: what is trained on, and what is held out.
struct Split {
  TokenRange train;
  TokenRange held_out;
};

/// Holds out the last `fraction` of the documents, rounded up; a stream of one document is cut by
/// tokens. fraction 0 holds out nothing.
Split split(const TokenSource& source, double fraction);

}  // namespace stowage::inputs
