#include "drivers/train/checkpoint_writer.hpp"

#include <algorithm>
#include <utility>

namespace stowage::drivers {

using execution::MemoryKind;
using results::TensorDigest;

namespace {

std::size_t element_bytes(const CheckpointWriter::Part& part) {
  return execution::size_bytes(part.whole.dtype);
}

std::size_t bytes_of(const CheckpointWriter::Part& part) {
  return static_cast<std::size_t>(part.part.elements) * element_bytes(part);
}

std::vector<layers::CopiedPiece> pieces_of(const std::vector<CheckpointWriter::Part>& parts) {
  std::vector<layers::CopiedPiece> pieces;
  for (const CheckpointWriter::Part& part : parts)
    pieces.push_back({reinterpret_cast<std::size_t>(part.part.data), bytes_of(part)});
  return pieces;
}

}  // namespace

/// Elements [begin, end) of a part.
struct CheckpointWriter::Piece {
  std::size_t part;
  std::int64_t begin, end;
  const std::byte* from;
  std::size_t bytes;
};

CheckpointWriter::CheckpointWriter(execution::Backend& backend, std::vector<Part> parts,
                                   CopyPlace copy)
    : backend_(backend),
      parts_(std::move(parts)),
      layout_(pieces_of(parts_)),
      copy_(copy),
      staging_(backend.allocate(MemoryKind::host, kCheckpointStagingBytes)),
      queue_(backend.make_queue(execution::Lane::d2h, "checkpoint")),
      taken_(backend.make_timed_event()) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const bool same = i > 0 && parts_[i].whole.name == parts_[i - 1].whole.name;
    tensors_.push_back(i == 0 ? 0 : tensors_.back() + (same ? 0 : 1));
  }
  if (copy == CopyPlace::none) return;
  const MemoryKind kind = copy == CopyPlace::device ? MemoryKind::device : MemoryKind::host;
  aside_ = backend_.allocate(kind, std::max<std::size_t>(layout_.bytes, 1));
}

CheckpointWriter::~CheckpointWriter() {
  try {
    taken_->synchronize();
  } catch (...) {  // the copy has ended; what went wrong is told elsewhere
  }
}

void CheckpointWriter::take(execution::Queue& queue) {
  for (const layers::CopyLayout::Span& span : layout_.spans)
    queue.copy(aside_->data() + span.to, reinterpret_cast<const std::byte*>(span.from), span.bytes);
  queue.record(*taken_);
}

void CheckpointWriter::fetch(const Piece& piece, std::byte* to) {
  queue_->copy(to, piece.from, piece.bytes);
}

std::vector<TensorDigest> CheckpointWriter::write(const results::TensorBytes& file,
                                                  std::span<const std::int64_t> offsets,
                                                  bool as_it_is,
                                                  const std::atomic<bool>& abandoned) {
  // The thread of a checkpoint job: an event makes the rank's GPU the current one of it.
  const std::unique_ptr<execution::Event> on_this_gpu = backend_.make_event();
  std::vector<TensorDigest> digests;
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (tensors_[i] == digests.size()) digests.emplace_back(part.whole.name, part.whole.dtype);
    const std::size_t size = element_bytes(part);
    const std::byte* data =
        as_it_is || copy_ == CopyPlace::none ? part.part.data : aside_->data() + layout_.at[i];
    const auto step = static_cast<std::int64_t>(kCheckpointPieceBytes / size);
    for (std::int64_t begin = 0; begin < part.part.elements; begin += step) {
      const std::int64_t end = std::min(begin + step, part.part.elements);
      pieces.push_back({i, begin, end, data + static_cast<std::size_t>(begin) * size,
                        static_cast<std::size_t>(end - begin) * size});
    }
  }
  queue_->wait(*taken_);
  const auto staged = [&](std::size_t at) {
    return staging_->data() + at % 2 * kCheckpointPieceBytes;
  };
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
