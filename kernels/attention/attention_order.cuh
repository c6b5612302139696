#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention_launch.hpp"

/// Orders the documents of a packed batch by decreasing length, counts their tiles, chooses the
/// tiles of keys that are taken in pieces, and gives out the room for stored score gradients, on
/// the device, so that a captured launch serves every batch that fits its capacity.
///
/// A warp ranks one document against all others, its lanes side by side: as little as can be,
/// because the call's other kernels wait for it. Ties keep the batch's order, so the result is a
/// function of the lengths alone. The room for dS goes to the shortest documents first, so those
/// without are the first in the order: they are the ones with the most work for each byte.
namespace stowage::kernels::attention {

namespace detail {

/// What some documents have together.
struct Counts {
  int documents, tiles, wide;
};

__device__ __forceinline__ int total(int of_lane) { return __reduce_add_sync(~0U, of_lane); }

__device__ __forceinline__ std::int64_t total(std::int64_t of_lane) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) of_lane += __shfl_xor_sync(~0U, of_lane, mask);
  return of_lane;
}

/// Counts the tiles of keys in pieces before the document at `place`, which is `mine` and has
/// `length` tokens; `length_of` gives those of all. By a whole warp.
template <class LengthOf>
__device__ __forceinline__ void count_in_pieces(const ScheduleTables& s, int mine, int place,
                                                int length, LengthOf&& length_of) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto tiles_of = [&](int tokens) { return (tokens + s.tile_rows - 1) / s.tile_rows; };
  int longest = 0;
  std::int64_t work = 0;
  for (int document = lane; document < s.documents; document += 32) {
    const int tiles = tiles_of(length_of(document));
    longest = max(longest, tiles);
    work += std::int64_t{tiles} * (tiles + 1) / 2;
  }
  longest = __reduce_max_sync(~0U, longest);
  const auto least =
      static_cast<int>(least_in_pieces(total(work), longest, s.kv_heads, s.heads_per_kv));
  const auto of = [&](int tokens) { return max(0, tiles_of(tokens) - least + 1); };
  int before = 0;
  for (int document = lane; document < s.documents && least <= longest; document += 32) {
    const int its = length_of(document);
    if (its > length || (its == length && document < mine)) before += of(its);
  }
  before = total(before);
  if (lane != 0) return;
  s.in_pieces[place] = before;
  if (place == s.documents - 1) s.in_pieces[s.documents] = before + of(length);
}

}  // namespace detail

/// Documents that a block of so many threads ranks.
constexpr int ranked_by(int threads) { return threads / 32; }

/// Blocks of so many threads that rank all documents and the end behind the last one.
constexpr int ranking_blocks(int documents, int threads) {
  return documents / ranked_by(threads) + 1;
}

/// Ranks document `mine`, by a whole warp. kBackward: with what part 2 needs, tiles of kWideRows
/// and the places of stored dS.
template <bool kBackward, int kWideRows = 1>
__device__ __forceinline__ void rank_document(const ScheduleTables& s, int mine) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (mine > s.documents) return;
  const auto start_of = [&](int document) {
    return document < s.documents ? __ldg(s.cu_seqlens + document) : s.tokens;
  };
  const auto tiles_of = [&](int length) { return (length + s.tile_rows - 1) / s.tile_rows; };
  const auto wide_of = [](int length) { return (length + kWideRows - 1) / kWideRows; };
  const int start = start_of(mine);
  if (lane == 0) s.starts[mine] = start;
  if (mine == s.documents) return;
  const int length = start_of(mine + 1) - start;
  detail::Counts longer{0, 0, 0};  // documents before this one in the order
  std::int64_t room_used = 0;      // dS blocks of those behind it
  for (int other = lane; other < s.documents; other += 32) {
    const int its = start_of(other + 1) - start_of(other);
    if (its > length || (its == length && other < mine)) {
      ++longer.documents;
      longer.tiles += tiles_of(its);
      if (kBackward) longer.wide += wide_of(its);
    } else if (kBackward && other != mine) {
      room_used += stored_blocks(s.causal, its);
    }
  }
  const int place = detail::total(longer.documents);
  const int first = detail::total(longer.tiles);
  const int first_end = first + tiles_of(length);
  const bool last = place == s.documents - 1;
  if (lane == 0) {
    s.order[place] = mine;
    s.first[place] = first;
    if (last) s.first[s.documents] = first_end;
  }
  if (!kBackward) return;
  if (s.in_pieces != nullptr) {
    detail::count_in_pieces(s, mine, place, length, [&](int document) {
      return start_of(document + 1) - start_of(document);
    });
  }
  const int wide = detail::total(longer.wide);
  const int wide_end = wide + wide_of(length);
  room_used = detail::total(room_used);
  if (lane != 0) return;
  s.wide[place] = wide;
  if (last) s.wide[s.documents] = wide_end;
  const bool stored = room_used + stored_blocks(s.causal, length) <= s.capacity;
  s.stored_at[mine] = stored ? static_cast<int>(room_used) : -1;
  if (stored && place == 0) s.limits[0] = s.limits[1] = 0;
  if (!stored && room_used <= s.capacity) {  // the last one without room
    s.limits[0] = first_end;
    s.limits[1] = wide_end;
  }
}

}  // namespace stowage::kernels::attention
