#include "inputs/data/sequences.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "execution/causal_pairs.hpp"
#include "execution/error.hpp"

namespace stowage::inputs {

using execution::throw_usage;

namespace {

/// Pairs of positions (k <= q) of a document of this length.
std::int64_t pairs_of(std::int64_t length) { return execution::causal_pairs(length, length); }

/// Bounds between documents in (begin, end).
std::span<const std::int64_t> bounds_inside(const TokenSource& source, std::int64_t begin,
                                            std::int64_t end) {
  const auto offsets = source.document_offsets();
  const auto first = std::ranges::upper_bound(offsets, begin);
  const auto last = std::lower_bound(first, offsets.end(), end);
  return {first, last};
}

}  // namespace

Sequences::Sequences(const TokenSource& source, TokenRange range, const SequenceOptions& options)
    : source_(source), range_(range), options_(options) {
  STOWAGE_ASSERT(options_.seq_length > 0 && options_.document_multiple > 0 &&
                     options_.seq_length % options_.document_multiple == 0,
                 "sequences of {} tokens, documents padded to a multiple of {}",
                 options_.seq_length, options_.document_multiple);
  summary_.packing = options_.packing;
  if (!packs_whole(options_.packing)) {
    cut_every_length();
    return;
  }
  if (!source.knows_documents()) {
    throw_usage(
        "{}: where its documents end is not known, so whole documents cannot be packed; give "
        "data.document_token, or data.packing = \"documents\" or \"none\"",
        source.description());
  }
  pack_documents();
}

void Sequences::cut_every_length() {
  const std::int64_t length = options_.seq_length;
  count_ = (range_.size() + (options_.keep_rest ? length - 1 : 0)) / length;
  if (count_ < 1) {
    throw_usage("{}: its part of {} tokens is shorter than one sequence of train.seq_length = {}",
                source_.description(), range_.size(), length);
  }
  summary_.positions = count_ * length;
  summary_.tokens = std::min(summary_.positions, range_.size());
  summary_.dropped_tokens = range_.size() - summary_.tokens;
  const auto bounds = bounds_inside(source_, range_.begin, range_.end);
  summary_.documents = 1 + static_cast<std::int64_t>(bounds.size());
  if (options_.packing == Packing::none) {
    max_pairs_ = pairs_of(cut_length(0));
  } else {
    count_pieces(bounds);
  }
}

std::int64_t Sequences::cut_length(std::int64_t sequence) const {
  return std::min(options_.seq_length, range_.size() - sequence * options_.seq_length);
}

void Sequences::count_pieces(std::span<const std::int64_t> bounds) {
  const std::int64_t length = options_.seq_length;
  const auto cut_behind = [&](std::int64_t token) { return (token - range_.begin) / length + 1; };
  std::int64_t begin = range_.begin;
  std::int64_t sequence = 0, pieces = 1, pairs = 0, piece = range_.begin;  // where the last begins
  // A document [begin, end) is in two sequences if one of the `count_` ends lies inside it.
  const auto close = [&](std::int64_t end) {
    const std::int64_t cut = cut_behind(begin);
    if (cut <= count_ && range_.begin + cut * length < end) ++summary_.split_documents;
    begin = end;
  };
  // Ends the sequence for `next`; those between have no bound inside them.
  const auto go_to = [&](std::int64_t next) {
    if (next == sequence) return;
    max_pieces_ = std::max(max_pieces_, pieces);
    pairs += pairs_of(range_.begin + sequence * length + cut_length(sequence) - piece);
    const bool between = next > sequence + 1;
    max_pairs_ = std::max(max_pairs_, between ? pairs_of(cut_length(sequence + 1)) : 0);
    max_pairs_ = std::max(max_pairs_, pairs);
    sequence = next;
    pieces = 1;
    pairs = 0;
    piece = range_.begin + next * length;
  };
  for (const std::int64_t bound : bounds) {
    if (bound == begin) continue;  // an empty document
    close(bound);
    const std::int64_t in = cut_behind(bound) - 1;
    if (in >= count_ || range_.begin + in * length == bound) continue;  // no bound inside one
    go_to(in);
    ++pieces;
    pairs += pairs_of(bound - piece);
    piece = bound;
  }
  go_to(count_);
  close(range_.end);
}

void Sequences::pack_documents() {
  const auto offsets = source_.document_offsets();
  starts_ = {0};
  std::vector<Piece> window;
  std::int64_t document = std::ranges::upper_bound(offsets, range_.begin) - offsets.begin() - 1;
  while (document < source_.documents() && offsets[document] < range_.end) {
    window.clear();
    document = take_window(document, window);
    pack_window(window);
  }
  count_ = std::ssize(starts_) - 1;
  if (count_ < 1) {
    throw_usage(
        "{}: none of its {} documents has at most train.seq_length = {} tokens, and "
        "data.long_documents = \"drop\"",
        source_.description(), summary_.documents, options_.seq_length);
  }
  summary_.positions = count_ * options_.seq_length;
}

std::int64_t Sequences::take_window(std::int64_t document, std::vector<Piece>& window) {
  const auto offsets = source_.document_offsets();
  const std::int64_t most = options_.window > 0 ? options_.window : source_.documents();
  for (std::int64_t taken = 0; taken < most && document < source_.documents(); ++document) {
    const auto d = static_cast<std::size_t>(document);
    const std::int64_t begin = std::max(offsets[d], range_.begin);
    const std::int64_t end = std::min(offsets[d + 1], range_.end);
    if (begin >= range_.end) break;
    if (begin == end) continue;  // a document without a token
    ++taken;
    take_document(begin, end, window);
  }
  return document;
}

void Sequences::take_document(std::int64_t begin, std::int64_t end, std::vector<Piece>& window) {
  const std::int64_t length = options_.seq_length;
  ++summary_.documents;
  if (end - begin > length && !options_.split_long) {
    ++summary_.dropped_documents;
    summary_.dropped_tokens += end - begin;
    return;
  }
  if (end - begin > length) ++summary_.split_documents;
  summary_.tokens += end - begin;
  for (; begin < end; begin += length) {
    const std::int64_t tokens = std::min(length, end - begin);
    window.push_back({begin, static_cast<std::int32_t>(tokens), begin + tokens < end});
  }
}

void Sequences::pack_window(std::span<const Piece> window) {
  std::vector<std::int64_t> lengths;
  lengths.reserve(window.size());
  for (const Piece& piece : window) lengths.push_back(padded(piece));
  const std::vector<std::int64_t> bins =
      pack(lengths, {options_.seq_length, options_.max_documents}, options_.packing);
  if (bins.empty()) return;
  // Sorted by bin, the pieces of one in the order of the stream.
  std::vector<std::int64_t> next(static_cast<std::size_t>(*std::ranges::max_element(bins)) + 1);
  std::vector<std::int64_t> pairs(next.size());
  for (std::size_t i = 0; i < bins.size(); ++i) {
    ++next[bins[i]];
    pairs[bins[i]] += pairs_of(lengths[i]);
  }
  max_pairs_ = std::max(max_pairs_, *std::ranges::max_element(pairs));
  for (std::int64_t& at : next) {
    max_pieces_ = std::max(max_pieces_, at);
    const std::int64_t start = starts_.back();
    starts_.push_back(start + at);
    at = start;
  }
  pieces_.resize(static_cast<std::size_t>(starts_.back()));
  for (std::size_t i = 0; i < window.size(); ++i) {
    std::int64_t& at = next[bins[i]];
    pieces_[at++] = window[i];
  }
}

std::span<const Piece> Sequences::pieces(std::int64_t sequence, std::vector<Piece>& room) const {
  if (packs_whole(options_.packing)) {
    const auto s = static_cast<std::size_t>(sequence);
    return std::span(pieces_).subspan(static_cast<std::size_t>(starts_[s]),
                                      static_cast<std::size_t>(starts_[s + 1] - starts_[s]));
  }
  room.clear();
  std::int64_t begin = range_.begin + sequence * options_.seq_length;
  const std::int64_t end = begin + cut_length(sequence);
  const auto add = [&](std::int64_t bound, bool continues) {
    room.push_back({begin, static_cast<std::int32_t>(bound - begin), continues});
    begin = bound;
  };
  // Up to end + 1: a document that ends with the sequence has no target beyond it.
  if (options_.packing == Packing::documents) {
    for (const std::int64_t bound : bounds_inside(source_, begin, end + 1))
      if (bound > begin) add(bound, false);
  }
  if (begin < end) add(end, end < range_.end);
  return room;
}

std::int64_t Sequences::padded(const Piece& piece) const {
  const std::int64_t multiple = options_.document_multiple;
  return (piece.tokens + multiple - 1) / multiple * multiple;
}

std::string text(const PackingSummary& summary) {
  std::string words = fmt::format("{}, {:.2f} % of positions hold a token", name(summary.packing),
                                  100 * summary.efficiency());
  if (summary.split_documents > 0)
    words += fmt::format("; {} of {} documents split", summary.split_documents, summary.documents);
  if (summary.dropped_tokens > 0) {
    words += fmt::format("; {} tokens dropped", summary.dropped_tokens);
    if (summary.dropped_documents > 0)
      words += fmt::format(" in {} of {} documents above the sequence length",
                           summary.dropped_documents, summary.documents);
  }
  return words;
}

}  // namespace stowage::inputs
