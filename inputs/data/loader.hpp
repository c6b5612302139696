#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "inputs/data/mixture.hpp"
#include "inputs/data/sequences.hpp"
#include "inputs/data/token_source.hpp"

namespace stowage::inputs {

/// Target of a position that is not counted.
inline constexpr std::int32_t kNoTarget = -1;
/// Token of a position that holds none: padding behind a document, and the tail.
inline constexpr std::int32_t kPadToken = 0;

struct LoaderOptions {
  SequenceOptions sequences = {};      ///< how the stream becomes sequences of T tokens
  std::int64_t micro_batch_size = 0;   ///< sequences of a microbatch
  std::int64_t global_batch_size = 0;  ///< sequences of a step, over all ranks
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  bool shuffle = true;     ///< false: the order of the stream
  std::uint64_t seed = 0;  ///< of the order
  /// true: each pass serves every token once, as an evaluation needs. The rest of a stream that is
  /// cut every T tokens is a sequence too. Sequences of one token without a target fill up the last
  /// step. false: a step may reach into the next pass.
  bool once = false;
};

/// A source that a loader serves, the range of it that it may, and how often its sequences come:
/// in proportion to its weight.
struct LoaderPart {
  const TokenSource* source;  ///< it must outlive the loader
  TokenRange range;
  double weight = 1;
};

/// The whole position of a loader; it is stored with results and checkpoints.
struct LoaderPosition {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;   ///< passes over the data finished
  std::int64_t sample = 0;  ///< next sample of this pass, over all ranks

  friend bool operator==(const LoaderPosition&, const LoaderPosition&) = default;
};

/// Memory of the caller (pinned slots) that a microbatch is written to; n = micro_batch_size * T.
struct Microbatch {
  std::span<std::int32_t> tokens;      ///< (n)
  std::span<std::int32_t> targets;     ///< (n), kNoTarget where not counted
  std::span<std::int32_t> cu_seqlens;  ///< (capacity + 1), filled up with its last value
  /// (n), which of the loader's sources a counted target is of, else kNoTarget; empty: not asked.
  std::span<std::int32_t> sources = {};
};

/// What fill() wrote.
struct Filled {
  std::int64_t documents = 0;  ///< in the microbatch; above capacity: nothing was written
  std::int64_t tokens = 0;     ///< of documents: without padding, tail and what fills a step up
  std::int64_t targets = 0;    ///< counted positions
};

/// Serves the batches of a stream: step after step, the same order for any number of ranks.
///
/// Which tokens make a sequence follows from the data (sequences.hpp). The target of a token is the
/// next token of the stream if it belongs to the same document and its mask is 1; a part of a long
/// document looks one token beyond its end. In pass e the order of the S sequences is a permutation
/// of [0, S) computed from (seed, e) without storage (permutation.hpp), and a step may reach into
/// the next pass.
///
/// Of several sources, a mixture (mixture.hpp) says which one each sample is of. Each is served in
/// passes of its own; a pass of the loader is as many samples as all of them have sequences.
///
/// In a microbatch the documents of its sequences lie one behind the other. What remains of n
/// behind the last one is the tail: kPadToken without targets, outside cu_seqlens. Only packing by
/// whole documents leaves a tail.
///
/// Sequence s of a step belongs to rank s / (global_batch_size / ranks), in microbatches of
/// micro_batch_size in order. It is not for use by several threads at once.
class Loader {
 public:
  /// Throws a usage error if the batch does not divide, or the range is shorter than a sequence.
  /// The source must outlive the loader.
  Loader(const TokenSource& source, TokenRange range, LoaderOptions options)
      : Loader({{&source, range}}, options) {}
  /// The same of several sources, which `once` does not allow.
  Loader(std::vector<LoaderPart> parts, LoaderOptions options);

  /// Microbatches of this rank in a step.
  std::int64_t microbatches() const { return microbatches_; }
  /// Sequences of one pass.
  std::int64_t samples() const { return samples_; }
  /// Which tokens make a sequence of each source.
  const std::vector<Sequences>& sequences() const { return sequences_; }
  /// Part of the samples that is of a source.
  double share(std::size_t source) const { return mixture_.share(source); }
  /// What packing made of the data; tokens and positions are those of a pass.
  const PackingSummary& packing() const { return packing_; }
  /// Steps of one pass: all of an evaluation, else the whole ones, at least one.
  std::int64_t steps_per_pass() const;
  /// The most documents that any microbatch of this data can have: a capacity that always fits.
  std::int64_t max_documents() const;
  /// The most pairs of positions (k <= q) in the documents of any microbatch.
  std::int64_t max_pairs() const;

  /// Counted positions of the current step, over all ranks: the divisor of its loss. Computed from
  /// the document boundaries and the mask, without reading tokens or asking other ranks.
  std::int64_t global_targets() const;
  /// Tokens of documents of the current step, over all ranks: as Filled::tokens counts them.
  std::int64_t global_tokens() const;
  /// Documents of microbatch m of the current step of all ranks, in the order of the step.
  std::int64_t documents_of(std::int64_t microbatch) const;
  /// The most documents in a microbatch of the current step, over all ranks: which program to run.
  std::int64_t global_documents() const;

  /// Microbatches of all ranks in a step.
  std::int64_t all_microbatches() const { return microbatches_ * options_.ranks; }
  /// Writes microbatch m of the current step, counted over all ranks in the order of the step. If
  /// cu_seqlens is too small it writes nothing and returns how many documents there are. Throws a
  /// usage error for a bad token in the data.
  Filled fill_any(std::int64_t microbatch, const Microbatch& out) const;
  /// Writes microbatch m of this rank likewise.
  Filled fill(std::int64_t microbatch, const Microbatch& out) const;

  /// To the next step.
  void advance();
  /// Goes on to the next step that has a counted target, if this one has none.
  /// @return steps that were passed over
  /// @throws Error (exit 2) if none has, this one and the following `most` ones
  std::int64_t pass_untargeted(std::int64_t most);

  /// Where the current step starts.
  LoaderPosition position() const { return position_; }
  /// Goes to a stored position. Throws a usage error if it does not fit this data.
  void seek(LoaderPosition position);

 private:
  /// A sequence: its pieces, and what they are of.
  struct Cut {
    std::size_t part;
    const TokenSource& source;
    const Sequences& sequences;
    std::span<const Piece> pieces;
  };

  bool fills_up(std::int64_t sequence) const;  // of the current step, as the following
  Cut cut_at(std::int64_t sequence) const;
  std::int64_t targets_of(const Cut& cut) const;
  bool has_target() const;  // in the current step; as soon as one is found
  void fill_piece(const TokenSource& source, const Piece& piece, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> targets) const;
  PackingSummary summary() const;
  std::string description() const;

  std::vector<LoaderPart> parts_;
  LoaderOptions options_;
  Mixture mixture_;
  std::vector<Sequences> sequences_;
  std::int64_t samples_ = 0;
  PackingSummary packing_;
  Piece filler_;  // of a sequence that fills a step up
  std::int64_t microbatches_ = 0;
  LoaderPosition position_;
  // Room for one sequence, used again by every call.
  mutable std::vector<Piece> pieces_;
  mutable std::vector<std::int32_t> stream_;  // T + 1 tokens
  mutable std::vector<std::uint8_t> mask_;    // T
};

/// Checks document starts as the kernels need them: from 0, not falling, at most `tokens`. Throws a
/// runtime error that names place and value otherwise.
void require_document_starts(std::span<const std::int32_t> cu_seqlens, std::int64_t tokens);

}  // namespace stowage::inputs
