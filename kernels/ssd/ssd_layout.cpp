#include "kernels/ssd/ssd_layout.hpp"

#include <algorithm>
#include <cstddef>

#include "execution/error.hpp"
#include "kernels/ssd/ssd.hpp"

namespace stowage::kernels {
namespace ssd {
namespace {

constexpr int kLeastSegmentChunks = 8;  // below, a segment's own state costs more than it saves
constexpr int kLeastPieceChunks = 16;   // most heads remember fewer
constexpr int kMostPieces = 4;          // of a segment
constexpr int kMostWaveSegments = 4;    // where one has more blocks than the GPU multiprocessors

/// Segments of which `blocks` blocks each, one a multiprocessor, waste least in their last wave.
int segments_of_waves(int blocks) {
  const auto waves = [&](int n) { return (blocks * n + kMultiprocessors - 1) / kMultiprocessors; };
  int best = 1;
  for (int n = 2; n <= kMostWaveSegments; ++n) {
    if (waves(n) * best < waves(best) * n) best = n;
  }
  return best;
}

/// Segments such that `blocks` blocks a segment fill the GPU once, or a few times if units cut
/// heads.
int segments_for(const SsdCudaShape& shape, int chunks, int blocks) {
  const bool waves = shape.head_dim % kPart != 0 && blocks > kMultiprocessors;
  const int natural = waves ? segments_of_waves(blocks) : kMultiprocessors / blocks;
  const int fit = shape.segments > 0 ? shape.segments : natural;
  return std::clamp(fit, 1, std::max(1, chunks / kLeastSegmentChunks));
}

/// Chunks of a piece: as few as keep their number small, whose states are added one by one.
int piece_chunks_for(int segment_chunks) {
  return std::max(kLeastPieceChunks, (segment_chunks + kMostPieces - 1) / kMostPieces);
}

}  // namespace

Sizes sizes_of(const SsdCudaShape& shape, bool backward) {
  const std::int64_t xbc_width =
      static_cast<std::int64_t>(shape.heads) * shape.head_dim + 2LL * shape.groups * shape.state;
  STOWAGE_ASSERT(shape.tokens > 0 && shape.tokens < (1LL << 30), "ssd: {} tokens", shape.tokens);
  STOWAGE_ASSERT(
      is_served(shape.heads, shape.head_dim, shape.groups, shape.state),
      "ssd: {} heads of {} columns in {} groups, state {}: needs a multiple of {} columns "
      "and state 64 or 128, or {} columns, state {} and groups of a multiple of {}",
      shape.heads, shape.head_dim, shape.groups, shape.state, kPart, kCutColumns, kCutState, kPart);
  STOWAGE_ASSERT(shape.xbc_stride % 8 == 0 && shape.xbc_stride >= xbc_width,
                 "ssd: row stride {} of xbc of width {}", shape.xbc_stride, xbc_width);
  STOWAGE_ASSERT(shape.y_stride % 8 == 0, "ssd: row stride {} of y", shape.y_stride);
  Sizes s;
  s.tokens = static_cast<int>(shape.tokens);
  s.chunks = (s.tokens + kChunk - 1) / kChunk;
  s.heads = shape.heads;
  s.parts = shape.head_dim / kPart;
  s.units = s.heads * shape.head_dim / kPart;
  s.groups = shape.groups;
  s.group_units = s.units / s.groups;
  s.record_floats = backward ? kRecordFloats : kForwardRecordFloats;
  s.b_column = s.units * kPart;
  s.c_column = s.b_column + s.groups * shape.state;
  const int block_units = backward ? kStatesUnits : kScanUnits;
  const int blocks = s.groups * ((s.group_units + block_units - 1) / block_units);
  const int segments = segments_for(shape, s.chunks, backward ? 2 * blocks : blocks);
  s.segment_chunks = (s.chunks + segments - 1) / segments;
  s.segments = (s.chunks + s.segment_chunks - 1) / s.segment_chunks;
  s.piece_chunks = std::min(piece_chunks_for(s.segment_chunks), s.segment_chunks);
  s.pieces = (s.segment_chunks + s.piece_chunks - 1) / s.piece_chunks;
  return s;
}

namespace {

/// Hands out 1 KiB aligned pieces of the workspace; counts them only, with a null base.
class Pieces {
 public:
  explicit Pieces(void* base) : base_(static_cast<std::byte*>(base)) {}
  template <class T>
  T* take(std::int64_t count) {
    std::byte* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 1023) / 1024 * 1024;
    return reinterpret_cast<T*>(at);
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

Common take_common(Pieces& pieces, const Sizes& s) {
  const std::int64_t chunks = s.chunks;
  return {pieces.take<float>(chunks * s.heads * s.record_floats),
          pieces.take<Span>(chunks * kChunk)};
}

Partial take_partial(Pieces& pieces, const Sizes& s, int state) {
  const std::int64_t count = static_cast<std::int64_t>(s.segments) * s.pieces;
  return {pieces.take<float>(count * s.units * kPart * state), pieces.take<float>(count * s.heads)};
}

}  // namespace

ForwardSpace forward_space(const SsdCudaShape& shape, const Sizes& s, void* workspace) {
  Pieces pieces(workspace);
  ForwardSpace space{};
  space.common = take_common(pieces, s);
  space.partial = take_partial(pieces, s, shape.state);
  space.entering =
      pieces.take<float>(static_cast<std::int64_t>(s.segments) * s.units * kPart * shape.state);
  space.bytes = pieces.used();
  return space;
}

BackwardSpace backward_space(const SsdCudaShape& shape, const Sizes& s, void* workspace) {
  Pieces pieces(workspace);
  BackwardSpace space{};
  const std::int64_t chunks = s.chunks;
  const std::int64_t images = chunks * s.units * kPart * shape.state;
  space.common = take_common(pieces, s);
  space.state = take_partial(pieces, s, shape.state);
  space.adjoint = take_partial(pieces, s, shape.state);
  space.states = pieces.take<std::uint16_t>(images);
  space.adjoints = pieces.take<std::uint16_t>(images);
  space.scales = pieces.take<float>(chunks * s.units * kScaleFloats);
  space.dstep = pieces.take<float>(s.parts == 1 ? 0 : chunks * kChunk * s.units);
  space.sums = pieces.take<float>(chunks * s.units * 4);
  space.bytes = pieces.used();
  return space;
}

}  // namespace ssd

std::size_t ssd_cuda_forward_workspace_bytes(const SsdCudaShape& shape) {
  return ssd::forward_space(shape, ssd::sizes_of(shape, false), nullptr).bytes;
}

std::size_t ssd_cuda_backward_workspace_bytes(const SsdCudaShape& shape) {
  return ssd::backward_space(shape, ssd::sizes_of(shape, true), nullptr).bytes;
}

namespace detail {

using execution::Dtype;

namespace {

struct SimpleSizes {
  std::size_t chunks, states;

  SimpleSizes(const SsdShape& shape, std::int64_t tokens)
      : chunks(static_cast<std::size_t>(ssd::simple_chunks(tokens))),
        states(chunks * static_cast<std::size_t>(shape.heads * shape.head_dim * shape.state)) {}
};

/// The state before every chunk, and its decay.
std::size_t simple_forward_floats(const SsdShape& shape, std::int64_t tokens) {
  const SimpleSizes sizes(shape, tokens);
  return sizes.states + sizes.chunks * static_cast<std::size_t>(shape.heads);
}

/// States, adjoints, decays, sums of chunks, and gradients of B and C by group.
std::size_t simple_backward_floats(const SsdShape& shape, std::int64_t tokens) {
  const SimpleSizes sizes(shape, tokens);
  return 2 * sizes.states +
         sizes.chunks * static_cast<std::size_t>(shape.heads * (1 + ssd::kSimpleSums)) +
         2 * sizes.chunks *
             static_cast<std::size_t>(ssd::kSimpleChunk * shape.groups * shape.state);
}

}  // namespace

SsdCudaShape cuda_shape(const SsdShape& shape, std::int64_t tokens) {
  SsdCudaShape s;
  s.tokens = tokens;
  s.heads = static_cast<int>(shape.heads);
  s.head_dim = static_cast<int>(shape.head_dim);
  s.groups = static_cast<int>(shape.groups);
  s.state = static_cast<int>(shape.state);
  s.dt_min = static_cast<float>(shape.dt_min);
  s.dt_max = static_cast<float>(shape.dt_max);
  s.bf16_parameters = true;
  s.y_stride = shape.heads * shape.head_dim;
  s.xbc_stride = s.dxbc_stride = s.y_stride + 2 * shape.groups * shape.state;
  s.dt_stride = s.ddt_stride = shape.heads;
  return s;
}

std::size_t ssd_cuda_forward_bytes(const SsdShape& shape, std::int64_t tokens, Dtype storage) {
  if (storage == Dtype::fp64 || tokens == 0) return 0;
  if (shape.on_tensor_cores(storage))
    return ssd_cuda_forward_workspace_bytes(cuda_shape(shape, tokens));
  return simple_forward_floats(shape, tokens) * sizeof(float);
}

std::size_t ssd_cuda_backward_bytes(const SsdShape& shape, std::int64_t tokens, Dtype storage) {
  if (storage == Dtype::fp64 || tokens == 0) return 0;
  if (shape.on_tensor_cores(storage))
    return ssd_cuda_backward_workspace_bytes(cuda_shape(shape, tokens));
  return simple_backward_floats(shape, tokens) * sizeof(float);
}

}  // namespace detail
}  // namespace stowage::kernels
