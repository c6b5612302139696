#include "drivers/train/checkpoint_writer.hpp"

#include <algorithm>
#include <numeric>

#include "execution/error.hpp"

namespace stowage::drivers {

using execution::MemoryKind;
using results::TensorDigest;

namespace {

constexpr std::size_t kPieceBytes = std::size_t{16} << 20;  // long enough for a link and a disk
constexpr std::size_t kSpareBytes = std::size_t{2} << 30;   // of a device, for libraries
constexpr std::size_t kAlignment = 256;

std::size_t element_bytes(const CheckpointWriter::Part& part) {
  return execution::size_bytes(part.whole.dtype);
}

std::size_t bytes_of(const CheckpointWriter::Part& part) {
  return static_cast<std::size_t>(part.part.elements) * element_bytes(part);
}

}  // namespace

std::string_view name(CheckpointWriter::Copy copy) {
  switch (copy) {
    case CheckpointWriter::Copy::none:
      return "none";
    case CheckpointWriter::Copy::device:
      return "device";
    case CheckpointWriter::Copy::host:
      return "host";
  }
  return "?";
}

/// Elements [begin, end) of a part.
struct CheckpointWriter::Piece {
  std::size_t part;
  std::int64_t begin, end;
  const std::byte* from;
  std::size_t bytes;
};

CheckpointWriter::CheckpointWriter(execution::Backend& backend, std::vector<Part> parts,
                                   std::optional<Copy> asked, std::size_t host_budget)
    : backend_(backend),
      parts_(std::move(parts)),
      staging_(backend.allocate(MemoryKind::host, 2 * kPieceBytes)),
      queue_(backend.make_queue(execution::Lane::d2h, "checkpoint")) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    bytes_ += bytes_of(parts_[i]);
    const bool same = i > 0 && parts_[i].whole.name == parts_[i - 1].whole.name;
    tensors_.push_back(i == 0 ? 0 : tensors_.back() + (same ? 0 : 1));
  }
  lay_out();
  take_memory(asked, host_budget);
}

/// Parts that are close in memory stay so in the copy.
void CheckpointWriter::lay_out() {
  std::vector<std::size_t> order(parts_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return parts_[i].part.data; });
  at_.resize(parts_.size());
  for (const std::size_t i : order) {
    const std::byte* data = parts_[i].part.data;
    const std::size_t bytes = bytes_of(parts_[i]);
    if (bytes == 0) continue;
    if (spans_.empty() || data > spans_.back().from + spans_.back().bytes + kAlignment) {
      copy_bytes_ = (copy_bytes_ + kAlignment - 1) / kAlignment * kAlignment;
      spans_.push_back({data, copy_bytes_, 0});
    }
    Span& span = spans_.back();
    const auto before = static_cast<std::size_t>(data - span.from);
    at_[i] = span.at + before;
    span.bytes = before + bytes;
    copy_bytes_ = span.at + span.bytes;
  }
}

void CheckpointWriter::take_memory(std::optional<Copy> asked, std::size_t host_budget) {
  const auto take = [&](Copy copy) {
    if (copy == Copy::none) return;
    const MemoryKind kind = copy == Copy::device ? MemoryKind::device : MemoryKind::host;
    aside_ = backend_.allocate(kind, std::max<std::size_t>(copy_bytes_, 1));
    copy_ = copy;
  };
  if (asked) return take(*asked);
  try {
    const bool shared = backend_.name() == "host";  // its device memory is that of the host
    const auto spare = backend_.allocate(MemoryKind::device, shared ? 1 : kSpareBytes);
    return take(Copy::device);
  } catch (const execution::Error&) {
    if (copy_bytes_ <= host_budget) take(Copy::host);
  }
}

void CheckpointWriter::take() {
  for (const Span& span : spans_) queue_->copy(aside_->data() + span.at, span.from, span.bytes);
  queue_->synchronize();
}

void CheckpointWriter::fetch(const Piece& piece, std::byte* to) {
  queue_->copy(to, piece.from, piece.bytes);
}

std::vector<TensorDigest> CheckpointWriter::write(const results::TensorBytes& file,
                                                  std::span<const std::int64_t> offsets,
                                                  bool as_it_is,
                                                  const std::atomic<bool>& abandoned) {
  std::vector<TensorDigest> digests;
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (tensors_[i] == digests.size()) digests.emplace_back(part.whole.name, part.whole.dtype);
    const std::size_t size = element_bytes(part);
    const std::byte* data =
        as_it_is || copy_ == Copy::none ? part.part.data : aside_->data() + at_[i];
    const auto step = static_cast<std::int64_t>(kPieceBytes / size);
    for (std::int64_t begin = 0; begin < part.part.elements; begin += step) {
      const std::int64_t end = std::min(begin + step, part.part.elements);
      pieces.push_back({i, begin, end, data + static_cast<std::size_t>(begin) * size,
                        static_cast<std::size_t>(end - begin) * size});
    }
  }
  const auto staged = [&](std::size_t at) { return staging_->data() + at % 2 * kPieceBytes; };
  if (!pieces.empty()) fetch(pieces.front(), staged(0));
  for (std::size_t at = 0; at < pieces.size(); ++at) {
    queue_->synchronize();
    if (abandoned) return {};
    if (at + 1 < pieces.size()) fetch(pieces[at + 1], staged(at + 1));  // beside what follows
    const Piece& piece = pieces[at];
    const auto size = static_cast<std::int64_t>(element_bytes(parts_[piece.part]));
    const std::size_t tensor = tensors_[piece.part];
    parts_[piece.part].part.index.for_each_run(
        piece.begin, piece.end, [&](std::int64_t local, std::int64_t global, std::int64_t count) {
          const std::span<const std::byte> run(staged(at) + (local - piece.begin) * size,
                                               static_cast<std::size_t>(count * size));
          digests[tensor].add(global, run);
          file.write(offsets[tensor] + global * size, run);
        });
  }
  file.sync();
  return digests;
}

}  // namespace stowage::drivers
