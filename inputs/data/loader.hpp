#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inputs/data/token_source.hpp"

namespace stowage::inputs {

/// How documents lie in a sequence.
/// documents: a sequence is cut where documents end; nothing is predicted across a boundary.
/// none: boundaries in the stream are ignored, each sequence is one document (GPT's training).
enum class Packing { documents, none };

/// Target of a position that is not counted.
inline constexpr std::int32_t kNoTarget = -1;

struct LoaderOptions {
  std::int64_t seq_length = 0;         ///< T, tokens of a sequence
  std::int64_t micro_batch_size = 0;   ///< sequences of a microbatch
  std::int64_t global_batch_size = 0;  ///< sequences of a step, over all ranks
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  Packing packing = Packing::documents;
  bool shuffle = true;     ///< false: the order of the stream (validation)
  std::uint64_t seed = 0;  ///< of the order
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
  std::span<std::int32_t> cu_seqlens;  ///< (capacity + 1), filled up with its last value, n
};

/// What fill() wrote.
struct Filled {
  std::int64_t documents = 0;  ///< in the microbatch; above capacity: nothing was written
  std::int64_t targets = 0;    ///< counted positions
};

/// Serves the batches of a stream: step after step, the same order for any number of ranks.
///
/// Sample i of the S = range.size() / T samples is tokens [i * T, (i + 1) * T) of the range; the
/// target of a token is the next token of the stream, so the last position of a sample looks one
/// token beyond it. With Packing::documents a position has a target only if the next token belongs
/// to the same document; a document cut by a sample's end starts anew in the next sample. The last
/// token of the range has none. In pass e the order is a permutation of [0, S) computed from
/// (seed, e) without storage (permutation.hpp), and a step may reach into the next pass.
///
/// Sequence s of a step belongs to rank s / (global_batch_size / ranks), in microbatches of
/// micro_batch_size in order. It is not for use by several threads at once.
class Loader {
 public:
  /// Throws a usage error if the batch does not divide, or the range is shorter than a sequence.
  /// The source must outlive the loader.
  Loader(const TokenSource& source, TokenRange range, LoaderOptions options);

  /// Microbatches of this rank in a step.
  std::int64_t microbatches() const { return microbatches_; }
  /// Samples of one pass.
  std::int64_t samples() const { return samples_; }
  /// Whole steps of one pass, at least one: the length of an evaluation.
  std::int64_t steps_per_pass() const;
  /// The most documents that any microbatch of this data can have: a capacity that always fits.
  std::int64_t max_documents() const { return max_documents_ * options_.micro_batch_size; }

  /// Counted positions of the current step, over all ranks: the divisor of its loss. Computed from
  /// the document boundaries, without reading tokens or asking other ranks.
  std::int64_t global_targets() const;
  /// The most documents in a microbatch of the current step, over all ranks: which program to run.
  std::int64_t global_documents() const;

  /// Writes microbatch m of the current step. If cu_seqlens is too small it writes nothing and
  /// returns how many documents there are. Throws a usage error for a bad token in the data.
  Filled fill(std::int64_t microbatch, const Microbatch& out) const;

  /// To the next step.
  void advance();

  /// Where the current step starts.
  LoaderPosition position() const { return position_; }
  /// Goes to a stored position. Throws a usage error if it does not fit this data.
  void seek(LoaderPosition position);

 private:
  std::int64_t sample_at(std::int64_t sequence) const;  // of the current step
  std::int64_t documents_in(std::int64_t sample) const;
  std::int64_t targets_in(std::int64_t sample) const;
  void mask_targets(std::int64_t sample, std::span<std::int32_t> targets) const;

  const TokenSource& source_;
  TokenRange range_;
  LoaderOptions options_;
  std::int64_t samples_ = 0;
  std::int64_t microbatches_ = 0;
  std::int64_t max_documents_ = 1;
  LoaderPosition position_;
  mutable std::vector<std::int32_t> sequence_;  // T + 1 tokens
};

}  // namespace stowage::inputs
