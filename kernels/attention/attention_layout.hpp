#pragma once

#include <cstddef>
#include <cstdint>

#include "execution/dtype.hpp"
#include "kernels/attention/attention_heads.hpp"
#include "kernels/attention/attention_way.hpp"

namespace stowage::kernels {

/// Room that the backward takes at most for score gradients, unless a caller says otherwise, or for
/// sums of dq (4 bytes an element), unless a caller asks for these. For score gradients it takes
/// about half of it unless documents are so long that this holds too few heads at a time.
inline constexpr std::int64_t kStoredGradientBytes = std::int64_t{2304} << 20;

/// Sizes and layout of one attention call on the GPU. Matrices may be parts of one tensor, as of a
/// fused (tokens, (H + 2K) P) projection, whose heads may be interleaved.
struct AttentionLayout {
  execution::Dtype storage = execution::Dtype::bf16;  ///< of q, k, v, o: bf16 or fp32
  std::int64_t tokens = 0;  ///< rows of q, k, v, o: all documents, one after another
  int heads = 0;            ///< H, query heads
  int kv_heads = 0;         ///< K, divides H; query head h reads kv head h / (H / K)
  int head_dim = 0;         ///< P, at most 256; bf16 with 64, 128 or 256 is fast
  bool causal = true;       ///< query i of a document sees its keys 0 .. i, else all its keys
  float scale = 0;          ///< multiplies q k^T, usually 1 / sqrt(P)
  int documents = 0;        ///< capacity C: `cu_seqlens` has C + 1 entries; the rows after the last
                            ///< one are a document of their own
  std::int64_t uniform_length = 0;  ///< > 0: the C documents have this length and are all tokens;
                                    ///< `cu_seqlens` is unread and batch strides are read
  /// Visible query-key pairs of a batch of documents as the caller expects it at most; 0: those of
  /// one document of all tokens. Plans room and the order of heads; dq's last bit may depend on it,
  /// because scores computed again are rounded in another order.
  std::int64_t pairs = 0;
  /// The rows of q, o and their gradients, 0: all tokens, and the token that the first of them is.
  /// A part of the tokens only in packed documents; the backward then keeps no score gradients.
  std::int64_t queries = 0, first_query = 0;
  HeadStrides q = {}, k = {}, v = {}, o = {};  ///< what the forward reads
  HeadStrides d_o = {}, dq = {}, dk = {}, dv = {};
  bool fp32_key_gradients = false;  ///< dk and dv are fp32, whatever the storage
  /// Scratch that the backward may use to keep score gradients (2 bytes for every visible query-key
  /// pair of the heads taken at once) instead of computing them twice.
  std::int64_t stored_limit_bytes = kStoredGradientBytes;
  QueryGradient query_gradient = QueryGradient::by_shape;
};

/// Bytes of scratch, 256-byte aligned; the contents need not survive or be cleared. The same on
/// every machine, also without a GPU, so that memory can be planned anywhere.
std::size_t attention_forward_cuda_workspace_bytes(const AttentionLayout& layout);
std::size_t attention_backward_cuda_workspace_bytes(const AttentionLayout& layout);

namespace attention {

constexpr int kBackwardKeys = 128;  ///< keys of a tile that the backward's schedules count

/// Keys that a block of part 1 owns at a time, all or half of such a tile: dk and dv of 64 keys
/// of heads of 256 fill the registers.
constexpr int key_tile(int head_dim) { return head_dim == 256 ? 64 : kBackwardKeys; }

/// How often a schedule of part 1 counts a kv head: for each part of the tile.
constexpr int key_parts(int head_dim) { return kBackwardKeys / key_tile(head_dim); }

constexpr int kStoredBytes = 128 * 64 * 2;  ///< a block of dS: 128 keys x 64 queries, bf16

constexpr int kSumBlock = 64 * 64;  ///< a block of dq's sums: 64 queries x 64 columns, fp32

/// Number of dS blocks of one head and document of `length` tokens. A causal even row of 64 queries
/// keeps a whole block on the diagonal, of which it fills a half.
constexpr std::int64_t stored_blocks(bool causal, std::int64_t length) {
  const std::int64_t rows = (length + 63) / 64;
  const std::int64_t half = rows / 2;
  return causal ? half * (half + 1) + rows % 2 * (half + 1) : rows * ((length + 127) / 128);
}

/// Multiprocessors whose even share of the work decides which tiles are taken in pieces: a
/// constant, so that bits are the same on every machine.
constexpr int kSharedBy = 132;
/// Tiles are taken in pieces only if the longest has so many products more than an even share has
/// (a product: 128 keys x 128 queries of one head). Measured (NOTES.md): 7 % are gained by 11 of
/// them, 19 to 29 % by 32 to 55.
constexpr int kLeastGain = 8;
constexpr int kPieceWarps = 8;  ///< of a tile of keys: what pieces are added up by

/// Which tiles of 128 keys are taken in pieces, one for each query head of their group: those from
/// which to the end of their document there are at least so many tiles, themselves among them. The
/// causal mask leaves such a tile as many products a head. `work`: products of a head in all
/// documents; `longest`: of its longest tile.
///
/// A tile is in pieces if even the tile behind it has no less than an even share of the launch's
/// work. So there are fewer than kSharedBy / 2 of them: for the least number x, s of them in a
/// document mean (x - 1 + s) (x + s) / 2 >= s (2 x - 1) products a head, of at most
/// kSharedBy (x - 1) for all kv heads.
constexpr std::int64_t least_in_pieces(std::int64_t work, std::int64_t longest, int kv_heads,
                                       int heads_per_kv) {
  const std::int64_t all = work * kv_heads;
  const bool gains = kSharedBy * (longest * heads_per_kv - kLeastGain) >= all * heads_per_kv;
  return gains ? (all + kSharedBy - 1) / kSharedBy + 1 : longest + 1;
}

/// Byte offsets of what a call keeps in its workspace; parts of no use have no bytes.
struct Room {
  std::size_t tickets, turns, starts, order, first, wide, stored_at, limits, in_pieces, lse2;
  std::size_t delta, piece_sums, stored, sums, end;
  int counters;                  ///< tickets, and turns or arrivals right behind them
  int tiles_in_pieces;           ///< tiles of keys that a launch takes in pieces at most
  std::int64_t padded_rows;      ///< of lse2 and delta, where documents begin at whole tiles
  int kv_heads_at_once;          ///< taken by one round of launches of the backward
  bool inside;                   ///< dq is added up by the kernel that owns keys
  std::int64_t stored_per_head;  ///< dS blocks of a head (of each of its documents if they are
                                 ///< equal) in one round; 0: none are stored
};

/// Whether the tensor-core kernels have a path for this storage type and head dimension.
bool has_fast_path(const AttentionLayout& layout);

/// Documents as the kernels count them: with the one of the rows after the last.
constexpr int all_documents(const AttentionLayout& layout) {
  return layout.uniform_length > 0 ? layout.documents : layout.documents + 1;
}

Room make_room(const AttentionLayout& layout, bool backward);

}  // namespace attention
}  // namespace stowage::kernels
