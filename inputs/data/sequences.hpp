#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "inputs/data/packing.hpp"
#include "inputs/data/token_source.hpp"

namespace stowage::inputs {

/// Tokens [begin, begin + tokens) of a stream that are one document to the model: a document, or a
/// part of one that is too long.
struct Piece {
  std::int64_t begin = 0;
  std::int32_t tokens = 0;
  bool continues = false;  ///< the next token of the stream is the target of the last one

  std::int64_t targets() const { return tokens - (continues ? 0 : 1); }
};

/// How a stream becomes sequences; the keys of [data] about packing.
struct SequenceOptions {
  std::int64_t seq_length = 0;  ///< T
  Packing packing = Packing::documents;
  /// Documents that are packed together, in the order of the stream; 0: all of the range. With
  /// first_fit and best_fit, as the following.
  std::int64_t window = 1 << 14;
  bool split_long = true;              ///< documents above T tokens are split; false: dropped
  std::int64_t document_multiple = 1;  ///< each document is padded to a multiple; it divides T
  std::int64_t max_documents = 0;      ///< of a sequence; 0: any number
  /// true: the tokens behind the last cut of a stream that is cut every T tokens are a shorter
  /// sequence. false: they are in none.
  bool keep_rest = false;
};

/// What packing made of a stream, for people and results.
struct PackingSummary {
  Packing packing = Packing::documents;
  std::int64_t documents = 0;          ///< of the range, those without a token left out
  std::int64_t split_documents = 0;    ///< that lie in more than one sequence
  std::int64_t dropped_documents = 0;  ///< in no sequence, for their length
  std::int64_t dropped_tokens = 0;     ///< in no sequence, as the rest that is not kept
  std::int64_t tokens = 0;             ///< served in a pass
  std::int64_t positions = 0;          ///< sequences * T

  /// tokens / positions.
  double efficiency() const { return static_cast<double>(tokens) / static_cast<double>(positions); }
};

/// A range of a stream as sequences of at most T tokens, each a list of pieces.
///
/// They follow from the data and the options alone: not from a seed, a pass or the number of ranks.
/// So every capacity is known before step 1, and the loader's position is a few integers. Sequences
/// of whole documents are kept in memory, 16 bytes a document.
class Sequences {
 public:
  /// Throws a usage error if the range makes no sequence, or if whole documents are asked for from
  /// a source that does not know where they end. The source must outlive this.
  Sequences(const TokenSource& source, TokenRange range, const SequenceOptions& options);

  /// Number of sequences.
  std::int64_t count() const { return count_; }
  /// The most pieces of a sequence.
  std::int64_t max_pieces() const { return max_pieces_; }
  /// The most pairs of positions (k <= q) in the pieces of a sequence.
  std::int64_t max_pairs() const { return max_pairs_; }
  const PackingSummary& summary() const { return summary_; }

  /// The pieces of a sequence in their order. They lie in `room`, or in this.
  std::span<const Piece> pieces(std::int64_t sequence, std::vector<Piece>& room) const;
  /// Positions that a piece takes: its tokens, padded to the multiple.
  std::int64_t padded(const Piece& piece) const;

 private:
  void cut_every_length();
  /// Tokens of a sequence of a stream cut every T: T, or fewer of the rest.
  std::int64_t cut_length(std::int64_t sequence) const;
  /// Of a stream cut every T tokens: the most pieces and pairs of a sequence, and documents split,
  /// from the bounds between documents alone. There may be far more sequences.
  void count_pieces(std::span<const std::int64_t> bounds);
  void pack_documents();
  void pack_window(std::span<const Piece> window);
  /// Appends the pieces of documents from `document` on until the window is full; returns the next.
  std::int64_t take_window(std::int64_t document, std::vector<Piece>& window);
  void take_document(std::int64_t begin, std::int64_t end, std::vector<Piece>& window);

  const TokenSource& source_;
  TokenRange range_;
  SequenceOptions options_;
  std::int64_t count_ = 0;
  std::int64_t max_pieces_ = 1;
  std::int64_t max_pairs_ = 0;
  PackingSummary summary_;
  // Of whole documents: sequence s holds pieces [starts_[s], starts_[s + 1]).
  std::vector<Piece> pieces_;
  std::vector<std::int64_t> starts_;
};

/// For people: "best_fit, 99.21 % of positions hold a token; 3 of 1189 documents split".
std::string text(const PackingSummary& summary);

}  // namespace stowage::inputs
