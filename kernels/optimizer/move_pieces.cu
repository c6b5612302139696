// Copies of pieces (move_pieces.hpp). The table of pieces travels as a kernel argument, as adamw's;
// a block copies chunks of 16384 elements, neighbours by neighbouring threads. A piece whose places
// and widths all are multiples of 16 bytes goes 16 bytes at a time, four of them in flight; its
// table counts in these. Any other goes element by element. Rows are found by a division each.
// Cost: 2 bytes read and 2 written a bf16 element.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "kernels/machine.hpp"
#include "kernels/optimizer/move_pieces.hpp"

namespace stowage::kernels::optimizer {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocksPerMultiprocessor = 4;
constexpr std::int64_t kChunk = 16384;
constexpr int kInFlight = 4;

struct Entry {
  MovePieces::Piece piece;  // in units of 16 bytes if it is wide
  std::uint32_t first_chunk;
  bool wide;
};

/// A kernel's arguments may take 32764 bytes.
constexpr int kEntries = 400;
/// Elements of 16 bytes.
template <class S>
constexpr std::int64_t kUnit = 16 / sizeof(S);

template <class S>
struct Table {
  const S* from;
  S* to;
  std::uint32_t chunks;
  int count;
  Entry entries[kEntries];
};
static_assert(sizeof(Table<float>) <= 32764);

__device__ __forceinline__ std::int64_t place(const MovePieces::Side& side, std::int64_t l) {
  if (side.width == 0) return side.begin + l;
  const std::int64_t row = l / side.width;
  return side.begin + row * side.stride + (l - row * side.width);
}

/// Units [begin, end) of a piece.
template <class Unit>
__device__ __forceinline__ void move_units(const Unit* from, Unit* to,
                                           const MovePieces::Piece& piece, std::int64_t begin,
                                           std::int64_t end) {
  for (std::int64_t first = begin + threadIdx.x; first < end; first += kInFlight * kThreads) {
    Unit units[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (const std::int64_t at = first + i * kThreads; at < end)
        units[i] = from[place(piece.from, piece.first + at)];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (const std::int64_t at = first + i * kThreads; at < end)
        to[place(piece.to, piece.first + at)] = units[i];
  }
}

template <class S>
__global__ void __launch_bounds__(kThreads) move(const __grid_constant__ Table<S> table) {
  constexpr std::int64_t kWide = kUnit<S>;
  int at = 0;
  for (std::uint32_t chunk = blockIdx.x; chunk < table.chunks; chunk += gridDim.x) {
    while (at + 1 < table.count && table.entries[at + 1].first_chunk <= chunk) ++at;
    const Entry& entry = table.entries[at];
    const std::int64_t size = entry.wide ? kChunk / kWide : kChunk;
    const std::int64_t begin = size * (chunk - entry.first_chunk);
    const std::int64_t end = min(begin + size, entry.piece.elements);
    if (entry.wide)
      move_units(reinterpret_cast<const uint4*>(table.from), reinterpret_cast<uint4*>(table.to),
                 entry.piece, begin, end);
    else
      move_units(table.from, table.to, entry.piece, begin, end);
  }
}

/// A piece in units of 16 bytes; empty: it is not made of whole ones.
template <class S>
std::optional<MovePieces::Piece> in_units(MovePieces::Piece piece, const S* from, const S* to) {
  constexpr std::int64_t kWide = kUnit<S>;
  bool whole = reinterpret_cast<std::uintptr_t>(from) % 16 == 0 &&
               reinterpret_cast<std::uintptr_t>(to) % 16 == 0;
  for (std::int64_t* number :
       {&piece.first, &piece.elements, &piece.from.begin, &piece.from.width, &piece.from.stride,
        &piece.to.begin, &piece.to.width, &piece.to.stride}) {
    whole = whole && *number % kWide == 0;
    *number /= kWide;
  }
  return whole ? std::optional(piece) : std::nullopt;
}

}  // namespace

template <class S>
int launch_move_pieces(std::span<const MovePieces::Piece> pieces, const S* from, S* to,
                       void* stream) {
  const int most_blocks = machine().multiprocessors * kBlocksPerMultiprocessor;
  if (most_blocks == 0) return cudaErrorNoDevice;
  for (std::size_t begin = 0; begin < pieces.size(); begin += kEntries) {
    Table<S> table{.from = from, .to = to, .chunks = 0, .count = 0, .entries = {}};
    for (const MovePieces::Piece& piece :
         pieces.subspan(begin, std::min<std::size_t>(kEntries, pieces.size() - begin))) {
      const std::optional<MovePieces::Piece> wide = in_units(piece, from, to);
      table.entries[table.count++] = {wide.value_or(piece), table.chunks, wide.has_value()};
      table.chunks += static_cast<std::uint32_t>((piece.elements + kChunk - 1) / kChunk);
    }
    const unsigned blocks = std::min(table.chunks, static_cast<std::uint32_t>(most_blocks));
    move<S><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(table);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

template int launch_move_pieces(std::span<const MovePieces::Piece>, const float*, float*, void*);
template int launch_move_pieces(std::span<const MovePieces::Piece>, const execution::Bf16*,
                                execution::Bf16*, void*);

}  // namespace stowage::kernels::optimizer
