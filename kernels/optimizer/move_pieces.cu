// Copies of pieces (move_pieces.hpp). The table of pieces travels as a kernel argument, as adamw's;
// a block copies chunks of 4096 elements, one element a thread at a time, neighbours by
// neighbouring threads. Rows are found by a division an element: memory binds all the same.
// Cost: 2 bytes read and 2 written a bf16 element.

#include <algorithm>
#include <cstdint>

#include "kernels/machine.hpp"
#include "kernels/optimizer/move_pieces.hpp"

namespace stowage::kernels::optimizer {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocksPerMultiprocessor = 4;
constexpr std::int64_t kChunk = 4096;

struct Entry {
  MovePieces::Piece piece;
  std::uint32_t first_chunk;
};

/// A kernel's arguments may take 32764 bytes.
constexpr int kEntries = 440;
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

template <class S>
__global__ void __launch_bounds__(kThreads) move(const __grid_constant__ Table<S> table) {
  int at = 0;
  for (std::uint32_t chunk = blockIdx.x; chunk < table.chunks; chunk += gridDim.x) {
    while (at + 1 < table.count && table.entries[at + 1].first_chunk <= chunk) ++at;
    const Entry& entry = table.entries[at];
    const std::int64_t begin = kChunk * (chunk - entry.first_chunk);
    const std::int64_t end = min(begin + kChunk, entry.piece.elements);
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      const std::int64_t l = entry.piece.first + i;
      table.to[place(entry.piece.to, l)] = table.from[place(entry.piece.from, l)];
    }
  }
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
      table.entries[table.count++] = {piece, table.chunks};
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
