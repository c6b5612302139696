#include "inputs/data/loader.hpp"

#include <algorithm>

#include "execution/error.hpp"
#include "inputs/data/permutation.hpp"

namespace stowage::inputs {

using execution::throw_usage;

Loader::Loader(const TokenSource& source, TokenRange range, LoaderOptions options)
    : source_(source), range_(range), options_(options), position_{.seed = options.seed} {
  const LoaderOptions& o = options_;
  STOWAGE_ASSERT(o.seq_length > 0 && o.micro_batch_size > 0 && o.global_batch_size > 0,
                 "a loader needs a sequence length and batch sizes");
  STOWAGE_ASSERT(0 <= o.rank && o.rank < o.ranks, "rank {} of {}", o.rank, o.ranks);
  if (o.global_batch_size % (o.ranks * o.micro_batch_size) != 0) {
    throw_usage("a global batch of {} sequences does not divide into {} ranks * {} sequences",
                o.global_batch_size, o.ranks, o.micro_batch_size);
  }
  samples_ = range_.size() / o.seq_length;
  if (samples_ < 1) {
    throw_usage("{}: its part of {} tokens is shorter than one sequence of train.seq_length = {}",
                source_.description(), range_.size(), o.seq_length);
  }
  microbatches_ = o.global_batch_size / (o.ranks * o.micro_batch_size);
  sequence_.resize(static_cast<std::size_t>(o.seq_length + 1));
  for (std::int64_t sample = 0; sample < samples_; ++sample) {
    max_documents_ = std::max(max_documents_, documents_in(sample));
    if (o.packing == Packing::none) break;
  }
}

std::int64_t Loader::steps_per_pass() const {
  return std::max<std::int64_t>(1, samples_ / options_.global_batch_size);
}

std::int64_t Loader::sample_at(std::int64_t sequence) const {
  const std::int64_t at = position_.sample + sequence;
  const std::int64_t epoch = position_.epoch + at / samples_;
  const std::int64_t index = at % samples_;
  return options_.shuffle ? permuted(position_.seed, epoch, samples_, index) : index;
}

namespace {

/// Bounds between documents in (begin, end).
std::span<const std::int64_t> bounds_inside(const TokenSource& source, std::int64_t begin,
                                            std::int64_t end) {
  const auto offsets = source.document_offsets();
  const auto first = std::ranges::upper_bound(offsets, begin);
  const auto last = std::lower_bound(first, offsets.end(), end);
  return {first, last};
}

}  // namespace

std::int64_t Loader::documents_in(std::int64_t sample) const {
  if (options_.packing == Packing::none) return 1;
  const std::int64_t begin = range_.begin + sample * options_.seq_length;
  const auto bounds = bounds_inside(source_, begin, begin + options_.seq_length);
  return 1 + static_cast<std::int64_t>(bounds.size());
}

std::int64_t Loader::targets_in(std::int64_t sample) const {
  const std::int64_t begin = range_.begin + sample * options_.seq_length;
  const std::int64_t end = begin + options_.seq_length;
  std::int64_t targets = options_.seq_length - (end == range_.end ? 1 : 0);
  if (options_.packing == Packing::documents) {
    const std::int64_t last = std::min(end + 1, range_.end);  // a bound at `end` costs one, too
    targets -= static_cast<std::int64_t>(bounds_inside(source_, begin, last).size());
  }
  return targets;
}

std::int64_t Loader::global_targets() const {
  std::int64_t targets = 0;
  for (std::int64_t s = 0; s < options_.global_batch_size; ++s) targets += targets_in(sample_at(s));
  return targets;
}

std::int64_t Loader::global_documents() const {
  std::int64_t most = 0;
  for (std::int64_t first = 0; first < options_.global_batch_size;
       first += options_.micro_batch_size) {
    std::int64_t documents = 0;
    for (std::int64_t b = 0; b < options_.micro_batch_size; ++b) {
      documents += documents_in(sample_at(first + b));
    }
    most = std::max(most, documents);
  }
  return most;
}

void Loader::mask_targets(std::int64_t sample, std::span<std::int32_t> targets) const {
  const std::int64_t begin = range_.begin + sample * options_.seq_length;
  const std::int64_t end = begin + options_.seq_length;
  if (end == range_.end) targets.back() = kNoTarget;
  if (options_.packing == Packing::none) return;
  for (const std::int64_t bound : bounds_inside(source_, begin, end + 1)) {
    targets[static_cast<std::size_t>(bound - begin - 1)] = kNoTarget;
  }
}

Filled Loader::fill(std::int64_t microbatch, const Microbatch& out) const {
  const std::int64_t length = options_.seq_length, batch = options_.micro_batch_size;
  const auto t = static_cast<std::size_t>(length);
  STOWAGE_ASSERT(0 <= microbatch && microbatch < microbatches_, "microbatch {} of {}", microbatch,
                 microbatches_);
  STOWAGE_ASSERT(out.tokens.size() == t * static_cast<std::size_t>(batch) &&
                     out.targets.size() == out.tokens.size() && out.cu_seqlens.size() >= 2,
                 "buffers of another size than {} sequences of {} tokens", batch, length);
  const std::int64_t first =
      options_.rank * (options_.global_batch_size / options_.ranks) + microbatch * batch;
  Filled filled;
  for (std::int64_t b = 0; b < batch; ++b) filled.documents += documents_in(sample_at(first + b));
  if (filled.documents >= static_cast<std::int64_t>(out.cu_seqlens.size())) return filled;

  auto next_length = out.cu_seqlens.begin();
  *next_length++ = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t sample = sample_at(first + b);
    const std::int64_t begin = range_.begin + sample * length, end = begin + length;
    const std::size_t last = end < range_.end ? t + 1 : t;
    source_.read(begin, std::span(sequence_).first(last));
    const auto tokens = out.tokens.subspan(static_cast<std::size_t>(b) * t, t);
    const auto targets = out.targets.subspan(static_cast<std::size_t>(b) * t, t);
    std::copy_n(sequence_.begin(), t, tokens.begin());
    std::copy_n(sequence_.begin() + 1, t, targets.begin());
    mask_targets(sample, targets);
    filled.targets += targets_in(sample);
    if (options_.packing == Packing::documents) {
      for (const std::int64_t bound : bounds_inside(source_, begin, end)) {
        *next_length++ = static_cast<std::int32_t>(b * length + bound - begin);
      }
    }
    *next_length++ = static_cast<std::int32_t>((b + 1) * length);
  }
  std::fill(next_length, out.cu_seqlens.end(), static_cast<std::int32_t>(batch * length));
  return filled;
}

void Loader::advance() {
  const std::int64_t at = position_.sample + options_.global_batch_size;
  position_.epoch += at / samples_;
  position_.sample = at % samples_;
}

void Loader::seek(LoaderPosition position) {
  if (position.epoch < 0 || position.sample < 0 || position.sample >= samples_) {
    throw_usage("{}: position epoch {}, sample {} is not in its {} samples of {} tokens",
                source_.description(), position.epoch, position.sample, samples_,
                options_.seq_length);
  }
  position_ = position;
}

}  // namespace stowage::inputs
