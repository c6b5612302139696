#pragma once

#include "kernels/attention/attention_launch.hpp"

namespace stowage::kernels::attention {

/// One unit of work.
struct Tile {
  int sequence;   // with a batch stride: the document where all are equal, else 0
  int first_row;  // of the document in it
  int length;     // of the document
  int document;
  int index;  // tile of the document, from its first row; < 0: no tile is left
  int head;
  int stored;  // place of the document's dS in every head's room; < 0: not kept (backward only)
  int first_query, end_query;  // of the document, that a tile of keys takes (backward only)
};

/// The rows [first, end) of a document that are queries, of those from `row` on up to `rows` more.
struct QueryRows {
  int first, end;
};
__device__ __forceinline__ QueryRows query_rows(const QueryRange& queries, const Tile& tile,
                                                int row, int rows) {
  return {max(max(row, 0), queries.first - tile.first_row),
          min(min(row + rows, tile.length), queries.end - tile.first_row)};
}

__device__ __forceinline__ int tiles_of(const TileSchedule& s, int length) {
  return (length + s.tile_rows - 1) / s.tile_rows;
}

/// The tiles of this pass are [begin, end) of all documents and heads.
__device__ __forceinline__ int begin_tile(const TileSchedule& s) {
  return s.begin == nullptr ? 0 : __ldg(s.begin) * s.heads;
}

__device__ __forceinline__ int end_tile(const TileSchedule& s) {
  if (s.uniform_length > 0) return s.documents * tiles_of(s, s.uniform_length) * s.heads;
  return __ldg(s.end == nullptr ? s.first + s.documents : s.end) * s.heads;
}

/// The place in `order` of the document that holds tile `t` of one head; called by a whole warp,
/// with one ballot per factor of 32 in the number of documents.
__device__ __forceinline__ int find_place(const TileSchedule& s, int t) {
  int low = 0;
  int high = s.documents;
  while (high - low > 1) {
    const int width = (high - low + 31) / 32;
    const int probe = low + static_cast<int>(threadIdx.x % 32) * width;
    const bool before = probe < high && __ldg(s.first + probe) <= t;
    const int count = __popc(__ballot_sync(0xFFFFFFFFU, before));
    low += (count - 1) * width;
    high = min(high, low + width);
  }
  return low;
}

/// Draws the next tile; called by a whole warp.
__device__ __forceinline__ Tile next_tile(const TileSchedule& s) {
  int t = 0;
  if (threadIdx.x % 32 == 0) t = atomicAdd(s.ticket, 1);
  t = __shfl_sync(0xFFFFFFFFU, t, 0) + begin_tile(s);
  Tile tile{.index = -1};
  if (t >= end_tile(s)) return tile;
  int tiles = 0;  // of this document and one head
  int rest = 0;   // tile within this document
  if (s.uniform_length > 0) {
    tiles = tiles_of(s, s.uniform_length);
    tile.document = t / (tiles * s.heads);
    rest = t - tile.document * tiles * s.heads;
    tile.sequence = tile.document;
    tile.length = s.uniform_length;
  } else {
    const int place = find_place(s, t / s.heads);
    const int first = __ldg(s.first + place);
    tiles = __ldg(s.first + place + 1) - first;
    rest = t - first * s.heads;
    tile.document = __ldg(s.order + place);
    tile.first_row = __ldg(s.starts + tile.document);
    tile.length = __ldg(s.starts + tile.document + 1) - tile.first_row;
  }
  const int section = rest / (tiles * s.heads_per_section);
  rest -= section * tiles * s.heads_per_section;
  const int index = rest / s.heads_per_section;
  tile.head = section * s.heads_per_section + rest - index * s.heads_per_section;
  tile.index = s.longest_last ? tiles - 1 - index : index;
  return tile;
}

/// First element of a head's row, counted in the document of the tile.
__device__ __forceinline__ std::int64_t element(const HeadStrides& s, const Tile& tile, int row,
                                                int head) {
  return tile.sequence * s.batch + (tile.first_row + row) * s.row + head * s.head;
}

/// First row of a document in the padded statistics: a multiple of 64, past all rows of the
/// documents before. Works for `documents` too, which gives the end. P: parameters of the backward.
template <class P>
__device__ __forceinline__ int padded_first(const P& p, int document) {
  if (p.uniform_length > 0) return document * ((p.uniform_length + 127) / 128 * 128);
  return (p.starts[document] + document * 128) / 64 * 64;
}

/// The document that holds padded row `row`; every document owns at least the rows up to the
/// next's. By whole warps: its reads depend on one another once for each factor of 32 in their
/// number. P has the number of documents, too.
template <class P>
__device__ __forceinline__ int padded_document(const P& p, int row) {
  if (p.uniform_length > 0) return min(row / padded_first(p, 1), p.documents - 1);
  int low = 0;
  int high = p.documents;
  while (high - low > 1) {
    const int width = (high - low + 31) / 32;
    const int probe = low + static_cast<int>(threadIdx.x % 32) * width;
    const bool begun = probe < high && padded_first(p, probe) <= row;
    low += (__popc(__ballot_sync(~0U, begun)) - 1) * width;
    high = min(high, low + width);
  }
  return low;
}

/// Place of a document's dS blocks in the room of every head; < 0 if they are not kept.
__device__ __forceinline__ int stored_place(const BackwardParameters& p, int document) {
  if (p.stored == nullptr) return -1;
  if (p.uniform_length > 0) return static_cast<int>(document * p.heads * p.stored_per_head);
  return __ldg(p.stored_at + document);
}

/// First dS block of a tile's document and head.
__device__ __forceinline__ std::int64_t stored_first(const BackwardParameters& p, const Tile& tile,
                                                     int head) {
  return tile.stored + head * p.stored_per_head;
}

/// Number of dS blocks in the row of 64 queries `i`.
template <bool kCausal>
__device__ __forceinline__ int stored_row_blocks(int length, int i) {
  return kCausal ? i / 2 + 1 : (length + 127) / 128;
}

/// Place of the block of 64 queries `i` and 128 keys `j` among those of its document and head.
template <bool kCausal>
__device__ __forceinline__ int stored_block(int length, int i, int j) {
  return kCausal ? i / 2 * (i / 2 + 1) + i % 2 * (i / 2 + 1) + j : i * ((length + 127) / 128) + j;
}

}  // namespace stowage::kernels::attention
