#include "run/checkpoints/checkpoint_writer.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "results/file_threads.hpp"

namespace stowage::run {

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
    pieces.push_back(
        {reinterpret_cast<std::size_t>(part.part.data) + (part.part.on_host ? layers::kOnHost : 0),
         bytes_of(part)});
  return pieces;
}

}  // namespace

/// Elements [begin, end) of a part.
struct CheckpointWriter::Piece {
  std::size_t part;
  std::int64_t begin, end;
  const std::byte* from;
  std::size_t bytes;
  bool on_host;  ///< it need not be fetched
};

/// What the threads of a write share.
struct CheckpointWriter::Task {
  const results::TensorBytes& file;
  std::span<const std::int64_t> offsets;
  const std::atomic<bool>& abandoned;
  std::size_t piece_bytes;
  const std::vector<Piece>& pieces;
  results::Turns& turns;
};

CheckpointWriter::CheckpointWriter(execution::Backend& backend, std::vector<Part> parts,
                                   forecast::CopyPlace copy, Threads threads)
    : backend_(backend),
      parts_(std::move(parts)),
      layout_(pieces_of(parts_)),
      copy_(copy),
      threads_(threads),
      staging_(backend.allocate(MemoryKind::host, forecast::kCheckpointStagingBytes)),
      taken_(backend.make_timed_event()) {
  for (int thread = 0; thread < std::max(threads.overlapping, threads.alone); ++thread)
    queues_.push_back(backend.make_queue(execution::Lane::d2h, "checkpoint"));
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const bool same = i > 0 && parts_[i].whole.name == parts_[i - 1].whole.name;
    tensors_.push_back(i == 0 ? 0 : tensors_.back() + (same ? 0 : 1));
  }
  if (copy == forecast::CopyPlace::none) return;
  const MemoryKind kind =
      copy == forecast::CopyPlace::device ? MemoryKind::device : MemoryKind::host;
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
    queue.copy(aside_->data() + span.to,
               reinterpret_cast<const std::byte*>(span.from & ~layers::kOnHost), span.bytes);
  queue.record(*taken_);
}

std::vector<CheckpointWriter::Piece> CheckpointWriter::pieces(bool as_it_is,
                                                              std::size_t piece_bytes) const {
  const bool from_copy = !as_it_is && copy_ != forecast::CopyPlace::none;
  std::vector<Piece> all;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const TensorPart& part = parts_[i].part;
    const std::size_t size = element_bytes(parts_[i]);
    const std::byte* data = from_copy ? aside_->data() + layout_.at[i] : part.data;
    const auto step = static_cast<std::int64_t>(piece_bytes / size);
    for (std::int64_t begin = 0; begin < part.elements; begin += step) {
      const std::int64_t end = std::min(begin + step, part.elements);
      all.push_back({i, begin, end, data + static_cast<std::size_t>(begin) * size,
                     static_cast<std::size_t>(end - begin) * size,
                     from_copy ? copy_ == forecast::CopyPlace::host : part.on_host});
    }
  }
  return all;
}

/// Writes the pieces whose turn it is, each while the next one comes. @return their sums
std::vector<TensorDigest> CheckpointWriter::write_some(const Task& task, int thread) {
  // A thread of a checkpoint job: an event makes the rank's GPU the current one of it.
  const std::unique_ptr<execution::Event> on_this_gpu = backend_.make_event();
  std::vector<TensorDigest> digests;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (tensors_[i] == digests.size())
      digests.emplace_back(parts_[i].whole.name, parts_[i].whole.dtype);
  execution::Queue& queue = *queues_[static_cast<std::size_t>(thread)];
  queue.wait(*taken_);
  std::byte* const staged =
      staging_->data() + 2 * static_cast<std::size_t>(thread) * task.piece_bytes;
  std::size_t fetched = 0;
  const auto fetch = [&](const Piece& piece) -> const std::byte* {
    if (piece.on_host) return piece.from;
    std::byte* const to = staged + fetched++ % 2 * task.piece_bytes;
    queue.copy(to, piece.from, piece.bytes);
    return to;
  };
  std::optional<std::size_t> turn = task.turns.next();
  const std::byte* at = turn ? fetch(task.pieces[*turn]) : nullptr;
  while (turn) {
    const Piece& piece = task.pieces[*turn];
    const std::byte* const data = at;
    queue.synchronize();
    if (task.abandoned) break;
    turn = task.turns.next();
    if (turn) at = fetch(task.pieces[*turn]);  // beside what follows
    const auto size = static_cast<std::int64_t>(element_bytes(parts_[piece.part]));
    const std::size_t tensor = tensors_[piece.part];
    parts_[piece.part].part.index.for_each_run(
        piece.begin, piece.end, [&](std::int64_t local, std::int64_t global, std::int64_t count) {
          const std::span<const std::byte> run(data + (local - piece.begin) * size,
                                               static_cast<std::size_t>(count * size));
          digests[tensor].add(global, run);
          task.file.write(task.offsets[tensor] + global * size, run);
        });
  }
  return digests;
}

std::vector<TensorDigest> CheckpointWriter::write(const results::TensorBytes& file,
                                                  std::span<const std::int64_t> offsets,
                                                  bool as_it_is,
                                                  const std::atomic<bool>& abandoned) {
  const int threads = as_it_is ? threads_.alone : threads_.overlapping;
  const std::size_t piece_bytes =
      forecast::kCheckpointStagingBytes / 2 / static_cast<std::size_t>(threads);
  const std::vector<Piece> all = pieces(as_it_is, piece_bytes);
  results::Turns turns(all.size());
  const Task task{file, offsets, abandoned, piece_bytes, all, turns};
  std::vector<std::vector<TensorDigest>> found(static_cast<std::size_t>(threads));
  results::on_threads(threads, turns, [&](int thread) {
    found[static_cast<std::size_t>(thread)] = write_some(task, thread);
  });
  if (abandoned) return {};
  std::vector<TensorDigest> digests = std::move(found.front());
  for (std::size_t thread = 1; thread < found.size(); ++thread)
    for (std::size_t i = 0; i < found[thread].size(); ++i) digests[i].add(found[thread][i].sums());
  file.sync();
  return digests;
}

}  // namespace stowage::run
