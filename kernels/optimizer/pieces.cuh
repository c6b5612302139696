#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/machine.hpp"

/// An elementwise kernel over all pieces of an operator in one launch.
///
/// The table of pieces travels as a kernel argument, as adamw's. Chunks of 8192 elements are
/// numbered through all pieces; a persistent grid takes every G-th of them, and a block finds the
/// piece of its next chunk by going on in the table from its last. A thread has four elements of
/// each array at a time, 16-byte accesses; pieces off 16 bytes, and a piece's last elements, go
/// singly.
///
/// A Step is made of the inputs that pieces share, and has
///
///   work4(piece, step, i), work1(piece, step, i): device functions beside it, of the four elements
///     from i on and of element i, which leave the same bits
///   static bool aligned(piece): all of its addresses are multiples of 16 bytes
namespace stowage::kernels::device {

inline constexpr int kPieceThreads = 512;
inline constexpr int kPieceBlocksPerMultiprocessor = 2;
inline constexpr int kPieceVector = 4;  ///< elements of a thread's access
inline constexpr int kPiecePass = kPieceThreads * kPieceVector;
inline constexpr std::int64_t kPieceChunk = 4 * kPiecePass;

template <class... T>
bool all_aligned(const T*... at) {
  return ((reinterpret_cast<std::uintptr_t>(at) | ...) % 16) == 0;
}

template <class Piece>
struct PieceEntry {
  Piece piece;
  std::uint32_t first_chunk;
  bool aligned;  ///< all addresses allow 16-byte accesses
};

/// A kernel's arguments may take 32764 bytes.
inline constexpr int kPieceEntries = 600;
template <class Piece, class Inputs>
struct PieceTable {
  Inputs inputs;
  std::uint32_t chunks;
  int count;
  PieceEntry<Piece> entries[kPieceEntries];
};

template <class Step, class Piece, class Inputs>
__global__ void __launch_bounds__(kPieceThreads, kPieceBlocksPerMultiprocessor)
    elementwise(const __grid_constant__ PieceTable<Piece, Inputs> table) {
  const Step step(table.inputs);
  int at = 0;
  for (std::uint32_t chunk = blockIdx.x; chunk < table.chunks; chunk += gridDim.x) {
    while (at + 1 < table.count && table.entries[at + 1].first_chunk <= chunk) ++at;
    const PieceEntry<Piece>& entry = table.entries[at];
    const std::int64_t begin = kPieceChunk * (chunk - entry.first_chunk);
    const std::int64_t end = min(begin + kPieceChunk, entry.piece.elements);
    std::int64_t first = begin;
    if (entry.aligned)
      for (; first + kPiecePass <= end; first += kPiecePass)
        work4(entry.piece, step, first + threadIdx.x * kPieceVector);
    for (std::int64_t i = first + threadIdx.x; i < end; i += kPieceThreads)
      work1(entry.piece, step, i);
  }
}

template <class Step, class Piece, class Inputs>
int launch_pieces(std::span<const Piece> pieces, const Inputs& inputs, void* stream) {
  using Table = PieceTable<Piece, Inputs>;
  static_assert(sizeof(Table) <= 32764);
  const int most_blocks = machine().multiprocessors * kPieceBlocksPerMultiprocessor;
  if (most_blocks == 0) return cudaErrorNoDevice;
  for (std::size_t begin = 0; begin < pieces.size(); begin += kPieceEntries) {
    Table table{.inputs = inputs, .chunks = 0, .count = 0, .entries = {}};
    for (const Piece& piece :
         pieces.subspan(begin, std::min<std::size_t>(kPieceEntries, pieces.size() - begin))) {
      table.entries[table.count++] = {piece, table.chunks, Step::aligned(piece)};
      table.chunks += static_cast<std::uint32_t>((piece.elements + kPieceChunk - 1) / kPieceChunk);
    }
    const unsigned blocks = std::min(table.chunks, static_cast<std::uint32_t>(most_blocks));
    if (blocks == 0) continue;
    elementwise<Step, Piece, Inputs>
        <<<blocks, kPieceThreads, 0, static_cast<cudaStream_t>(stream)>>>(table);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace stowage::kernels::device
