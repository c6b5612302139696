#include "inputs/data/loader.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "execution/error.hpp"
#include "inputs/data/permutation.hpp"

namespace stowage::inputs {

using execution::throw_usage;

namespace {

SequenceOptions sequence_options(const LoaderOptions& options) {
  SequenceOptions sequences = options.sequences;
  sequences.keep_rest = options.once;
  return sequences;
}

std::vector<double> weights(const std::vector<LoaderPart>& parts) {
  std::vector<double> all;
  for (const LoaderPart& part : parts) all.push_back(part.weight);
  return all;
}

}  // namespace

Loader::Loader(std::vector<LoaderPart> parts, LoaderOptions options)
    : parts_(std::move(parts)),
      options_(options),
      mixture_(weights(parts_)),
      filler_{.begin = parts_.front().range.begin, .tokens = 1},
      position_{.seed = options_.seed} {
  for (const LoaderPart& part : parts_) {
    sequences_.emplace_back(*part.source, part.range, sequence_options(options_));
    samples_ += sequences_.back().count();
  }
  packing_ = summary();
  const LoaderOptions& o = options_;
  STOWAGE_ASSERT(!o.once || parts_.size() == 1, "once, of {} sources", parts_.size());
  STOWAGE_ASSERT(o.micro_batch_size > 0 && o.global_batch_size > 0, "a loader needs batch sizes");
  STOWAGE_ASSERT(0 <= o.rank && o.rank < o.ranks, "rank {} of {}", o.rank, o.ranks);
  if (o.global_batch_size % (o.ranks * o.micro_batch_size) != 0) {
    throw_usage("a global batch of {} sequences does not divide into {} ranks * {} sequences",
                o.global_batch_size, o.ranks, o.micro_batch_size);
  }
  microbatches_ = o.global_batch_size / (o.ranks * o.micro_batch_size);
  stream_.resize(static_cast<std::size_t>(o.sequences.seq_length + 1));
  mask_.resize(static_cast<std::size_t>(o.sequences.seq_length));
}

std::int64_t Loader::steps_per_pass() const {
  const std::int64_t batch = options_.global_batch_size;
  if (options_.once) return (samples() + batch - 1) / batch;
  return std::max<std::int64_t>(1, samples() / batch);
}

bool Loader::fills_up(std::int64_t sequence) const {
  return options_.once && position_.sample + sequence >= samples();
}

Loader::Cut Loader::cut_at(std::int64_t sequence) const {
  if (fills_up(sequence)) return {0, *parts_.front().source, sequences_.front(), {&filler_, 1}};
  const Mixture::Sample sample =
      mixture_.at(position_.epoch * samples() + position_.sample + sequence);
  const Sequences& sequences = sequences_[sample.source];
  const std::int64_t count = sequences.count();
  const std::int64_t index = sample.index % count;
  // Sources of one length have orders of their own.
  const std::uint64_t seed = position_.seed + sample.source * 0x9E3779B97F4A7C15u;
  const std::int64_t own =
      options_.shuffle ? permuted(seed, sample.index / count, count, index) : index;
  return {sample.source, *parts_[sample.source].source, sequences, sequences.pieces(own, pieces_)};
}

std::int64_t Loader::targets_of(const Cut& cut) const {
  std::int64_t targets = 0;
  for (const Piece& piece : cut.pieces) {
    if (!cut.source.masked()) {
      targets += piece.targets();
      continue;
    }
    const auto mask = std::span(mask_).first(static_cast<std::size_t>(piece.targets()));
    cut.source.read_mask(piece.begin + 1, mask);
    targets = std::accumulate(mask.begin(), mask.end(), targets);
  }
  return targets;
}

std::int64_t Loader::max_documents() const {
  return std::ranges::max_element(sequences_, {}, &Sequences::max_pieces)->max_pieces() *
         options_.micro_batch_size;
}

std::int64_t Loader::max_pairs() const {
  return std::ranges::max_element(sequences_, {}, &Sequences::max_pairs)->max_pairs() *
         options_.micro_batch_size;
}

PackingSummary Loader::summary() const {
  PackingSummary all = sequences_.front().summary();
  if (parts_.size() == 1) return all;
  all = {.packing = all.packing, .positions = samples_ * options_.sequences.seq_length};
  double tokens = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const PackingSummary& one = sequences_[i].summary();
    all.documents += one.documents;
    all.split_documents += one.split_documents;
    all.dropped_documents += one.dropped_documents;
    all.dropped_tokens += one.dropped_tokens;
    tokens += share(i) * one.efficiency();
  }
  all.tokens = std::llround(tokens * static_cast<double>(all.positions));
  return all;
}

std::string Loader::description() const {
  std::string all;
  for (const LoaderPart& part : parts_)
    all += (all.empty() ? "" : ", ") + part.source->description();
  return all;
}

std::int64_t Loader::global_targets() const {
  std::int64_t targets = 0;
  for (std::int64_t s = 0; s < options_.global_batch_size; ++s) targets += targets_of(cut_at(s));
  return targets;
}

std::int64_t Loader::global_tokens() const {
  std::int64_t tokens = 0;
  for (std::int64_t s = 0; s < options_.global_batch_size && !fills_up(s); ++s)
    for (const Piece& piece : cut_at(s).pieces) tokens += piece.tokens;
  return tokens;
}

bool Loader::has_target() const {
  for (std::int64_t s = 0; s < options_.global_batch_size; ++s)
    if (targets_of(cut_at(s)) > 0) return true;
  return false;
}

std::int64_t Loader::documents_of(std::int64_t microbatch) const {
  const std::int64_t batch = options_.micro_batch_size;
  std::int64_t documents = 0;
  for (std::int64_t b = 0; b < batch; ++b)
    documents += std::ssize(cut_at(microbatch * batch + b).pieces);
  return documents;
}

std::int64_t Loader::global_documents() const {
  std::int64_t most = 0;
  for (std::int64_t m = 0; m < all_microbatches(); ++m) most = std::max(most, documents_of(m));
  return most;
}

void Loader::fill_piece(const TokenSource& source, const Piece& piece,
                        std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
  const auto own = static_cast<std::size_t>(piece.tokens);
  const auto counted = static_cast<std::size_t>(piece.targets());
  const auto stream = std::span(stream_).first(counted + 1);
  source.read(piece.begin, stream);
  std::fill(std::copy_n(stream.begin(), own, tokens.begin()), tokens.end(), kPadToken);
  std::fill(std::copy_n(stream.begin() + 1, counted, targets.begin()), targets.end(), kNoTarget);
  if (!source.masked()) return;
  const auto mask = std::span(mask_).first(counted);
  source.read_mask(piece.begin + 1, mask);
  for (std::size_t i = 0; i < counted; ++i)
    if (mask[i] == 0) targets[i] = kNoTarget;
}

Filled Loader::fill(std::int64_t microbatch, const Microbatch& out) const {
  STOWAGE_ASSERT(0 <= microbatch && microbatch < microbatches_, "microbatch {} of {}", microbatch,
                 microbatches_);
  return fill_any(options_.rank * microbatches_ + microbatch, out);
}

Filled Loader::fill_any(std::int64_t microbatch, const Microbatch& out) const {
  const std::int64_t length = options_.sequences.seq_length, batch = options_.micro_batch_size;
  STOWAGE_ASSERT(0 <= microbatch && microbatch < all_microbatches(), "microbatch {} of {}",
                 microbatch, all_microbatches());
  STOWAGE_ASSERT(std::ssize(out.tokens) == length * batch &&
                     out.targets.size() == out.tokens.size() && out.cu_seqlens.size() >= 2 &&
                     (out.sources.empty() || out.sources.size() == out.tokens.size()),
                 "buffers of another size than {} sequences of {} tokens", batch, length);
  Filled filled{.documents = documents_of(microbatch)};
  if (filled.documents >= std::ssize(out.cu_seqlens)) return filled;

  auto start = out.cu_seqlens.begin();
  *start++ = 0;
  std::size_t at = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    const Cut cut = cut_at(microbatch * batch + b);
    for (const Piece& piece : cut.pieces) {
      const auto positions = static_cast<std::size_t>(cut.sequences.padded(piece));
      const auto targets = out.targets.subspan(at, positions);
      fill_piece(cut.source, piece, out.tokens.subspan(at, positions), targets);
      filled.tokens += fills_up(microbatch * batch + b) ? 0 : piece.tokens;
      filled.targets += std::ssize(targets) - std::ranges::count(targets, kNoTarget);
      if (!out.sources.empty())
        std::ranges::transform(targets, out.sources.subspan(at).begin(), [&](std::int32_t target) {
          return target == kNoTarget ? kNoTarget : static_cast<std::int32_t>(cut.part);
        });
      at += positions;
      *start++ = static_cast<std::int32_t>(at);
    }
  }
  std::fill(start, out.cu_seqlens.end(), static_cast<std::int32_t>(at));
  std::ranges::fill(out.tokens.subspan(at), kPadToken);
  std::ranges::fill(out.targets.subspan(at), kNoTarget);
  if (!out.sources.empty()) std::ranges::fill(out.sources.subspan(at), kNoTarget);
  return filled;
}

void Loader::advance() {
  std::int64_t at = position_.sample + options_.global_batch_size;
  if (options_.once) at = std::min(at, samples());  // the next pass begins with its first one
  position_.epoch += at / samples();
  position_.sample = at % samples();
}

std::int64_t Loader::pass_untargeted(std::int64_t most) {
  for (std::int64_t passed = 0; passed <= most; ++passed, advance())
    if (has_target()) return passed;
  throw_usage(
      "{}: no token of {} batches of {} sequences counts as a target: its mask, or documents of "
      "one token, leave nothing to predict",
      description(), most + 1, options_.global_batch_size);
}

void Loader::seek(LoaderPosition position) {
  constexpr std::int64_t kMostSamples = std::int64_t{1} << 62;
  if (position.epoch < 0 || position.epoch > kMostSamples / samples() || position.sample < 0 ||
      position.sample >= samples()) {
    throw_usage("{}: position epoch {}, sample {} is not in its {} samples of {} tokens",
                description(), position.epoch, position.sample, samples(),
                options_.sequences.seq_length);
  }
  position_ = position;
}

void require_document_starts(std::span<const std::int32_t> cu_seqlens, std::int64_t tokens) {
  std::int32_t last = 0;
  for (std::size_t i = 0; i < cu_seqlens.size(); ++i) {
    const std::int32_t start = cu_seqlens[i];
    if (start < last || (i == 0 && start != 0) || start > tokens) {
      throw execution::Error(
          execution::Exit::runtime,
          fmt::format("cu_seqlens[{}] = {} after {}: document starts begin at 0, never fall and "
                      "are at most {}, the tokens of a microbatch",
                      i, start, last, tokens));
    }
    last = start;
  }
}

}  // namespace stowage::inputs
