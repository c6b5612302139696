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
  // Of tiles of keys alone:
  int first_query, end_query;  // of the document, that the tile takes
  int first_head, end_head;    // of its kv head's group, that it takes
  int in_pieces;               // place among the tiles in pieces; < 0: it takes the whole group
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

/// The last of `count` places that has begun, where the first has and places begin one after
/// another; called by a whole warp, with one ballot per factor of 32 in their number.
template <class Begun>
__device__ __forceinline__ int last_begun(int count, Begun&& begun) {
  int low = 0;
  int high = count;
  while (high - low > 1) {
    const int width = (high - low + 31) / 32;
    const int probe = low + static_cast<int>(threadIdx.x % 32) * width;
    const bool has_begun = probe < high && begun(probe);
    low += (__popc(__ballot_sync(0xFFFFFFFFU, has_begun)) - 1) * width;
    high = min(high, low + width);
  }
  return low;
}

/// Draws a ticket; called by a whole warp.
__device__ __forceinline__ int draw_ticket(const TileSchedule& s) {
  int t = 0;
  if (threadIdx.x % 32 == 0) t = atomicAdd(s.ticket, 1);
  return __shfl_sync(0xFFFFFFFFU, t, 0);
}

/// Sets what tile is meant by the document at a place in the order.
__device__ __forceinline__ void set_document(Tile& tile, const TileSchedule& s, int place) {
  tile.document = __ldg(s.order + place);
  tile.first_row = __ldg(s.starts + tile.document);
  tile.length = __ldg(s.starts + tile.document + 1) - tile.first_row;
}

/// Sets the head of tile `t` of a document that has `tiles` of them a head, and gives the tile's
/// number in that head.
__device__ __forceinline__ int set_head(Tile& tile, const TileSchedule& s, int t, int tiles) {
  const int section = t / (tiles * s.heads_per_section);
  const int rest = t - section * tiles * s.heads_per_section;
  const int number = rest / s.heads_per_section;
  tile.head = section * s.heads_per_section + rest - number * s.heads_per_section;
  return number;
}

/// The tile of a ticket; called by a whole warp.
__device__ __forceinline__ Tile tile_of_ticket(const TileSchedule& s, int ticket) {
  const int t = ticket + begin_tile(s);
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
    const int place =
        last_begun(s.documents, [&](int probe) { return __ldg(s.first + probe) <= t / s.heads; });
    const int first = __ldg(s.first + place);
    tiles = __ldg(s.first + place + 1) - first;
    rest = t - first * s.heads;
    set_document(tile, s, place);
  }
  const int index = set_head(tile, s, rest, tiles);
  tile.index = s.longest_last ? tiles - 1 - index : index;
  return tile;
}

/// Draws the next tile; called by a whole warp.
__device__ __forceinline__ Tile next_tile(const TileSchedule& s) {
  return tile_of_ticket(s, draw_ticket(s));
}

/// Draws the next tile of keys or piece of one; called by a whole warp.
__device__ __forceinline__ Tile next_key_tile(const TileSchedule& s, int heads_per_kv) {
  const int t = draw_ticket(s);
  if (s.in_pieces == nullptr || __ldg(s.in_pieces + s.documents) == 0) {
    Tile tile = tile_of_ticket(s, t);
    tile.first_head = 0;
    tile.end_head = heads_per_kv;
    tile.in_pieces = -1;
    return tile;
  }
  // Tiles and pieces of one kv head before a place.
  const auto begin = [&](int place) {
    return __ldg(s.first + place) + __ldg(s.in_pieces + place) * (heads_per_kv - 1);
  };
  Tile tile{.index = -1};
  if (t >= begin(s.documents) * s.heads) return tile;
  const int place = last_begun(s.documents, [&](int probe) { return begin(probe) <= t / s.heads; });
  set_document(tile, s, place);
  const int before = __ldg(s.in_pieces + place);
  const int cut = __ldg(s.in_pieces + place + 1) - before;  // its first tiles are
  const int whole = tiles_of(s, tile.length) - cut;
  const int number =
      set_head(tile, s, t - begin(place) * s.heads, whole + cut * heads_per_kv) - whole;
  const bool piece = number >= 0;
  tile.index = piece ? number / heads_per_kv : cut + whole + number;
  tile.first_head = piece ? number % heads_per_kv : 0;
  tile.end_head = piece ? tile.first_head + 1 : heads_per_kv;
  tile.in_pieces = piece ? (before + tile.index) * s.heads + tile.head : -1;
  return tile;
}

/// First element of a head's row, counted in the document of the tile.
__device__ __forceinline__ std::int64_t element(const HeadStrides& s, const Tile& tile, int row,
                                                int head) {
  return tile.sequence * s.batch + (tile.first_row + row) * s.row + head * s.head;
}

/// First row of a document, or the end of the last; of packed ones. P: parameters of the backward.
template <class P>
__device__ __forceinline__ int start_of(const P& p, int document) {
  return p.starts[document];
}
__device__ __forceinline__ int start_of(const DeltaParameters& p, int document) {
  return document < p.documents ? __ldg(p.cu_seqlens + document) : p.tokens;
}

/// First row of a document in the padded statistics: a multiple of 64, past all rows of the
/// documents before. Works for `documents` too, which gives the end.
template <class P>
__device__ __forceinline__ int padded_first(const P& p, int document) {
  if (p.uniform_length > 0) return document * ((p.uniform_length + 127) / 128 * 128);
  return (start_of(p, document) + document * 128) / 64 * 64;
}

/// The document that holds padded row `row`; every document owns at least the rows up to the
/// next's. By whole warps: its reads depend on one another once for each factor of 32 in their
/// number. P has the number of documents, too.
template <class P>
__device__ __forceinline__ int padded_document(const P& p, int row) {
  if (p.uniform_length > 0) return min(row / padded_first(p, 1), p.documents - 1);
  return last_begun(p.documents, [&](int probe) { return padded_first(p, probe) <= row; });
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
