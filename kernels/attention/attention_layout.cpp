#include "kernels/attention/attention_layout.hpp"
#include "execution/causal_pairs.hpp"

#include <algorithm>

namespace stowage::kernels {
namespace attention {
namespace {

constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Visible pairs of a batch at most.
std::int64_t expected_pairs(const AttentionLayout& s) {
  const std::int64_t length = s.uniform_length > 0 ? s.uniform_length : s.tokens;
  const std::int64_t most = s.causal ? execution::causal_pairs(s.tokens, length)
                                     : s.tokens * length;  // of documents of that length
  return s.pairs > 0 ? std::min(s.pairs, most) : most;
}

/// dS blocks of one head that documents of uneven lengths need at most: stored_blocks of a length L
/// is below L (L + 254) / 16384 + 1, or L (L + 190) / 8192 + 1 if all keys are visible.
std::int64_t packed_blocks(const AttentionLayout& s) {
  const std::int64_t pairs = expected_pairs(s);
  const std::int64_t full =
      s.causal ? (2 * pairs + 253 * s.tokens) / 16384 : (pairs + 190 * s.tokens) / 8192;
  return full + std::min<std::int64_t>(all_documents(s), s.tokens);
}

/// Tiles of keys that one round of launches should have: with fewer, multiprocessors idle at
/// its end for longer than it takes to compute everything twice instead.
constexpr std::int64_t kTilesAtOnce = 256;

/// Room beyond which more heads at once gain little, where they already have that many tiles.
constexpr std::int64_t kWantedBytes = std::int64_t{1280} << 20;

/// How many kv heads to take at once so that their dS, `head_bytes` each, stay within the wanted
/// room, or else within the limit; 0: not worth it.
int heads_at_once(const AttentionLayout& s, std::int64_t head_bytes) {
  int chosen = 0;
  for (int heads = 1; heads <= s.kv_heads; ++heads) {
    if (s.kv_heads % heads != 0) continue;
    const bool enough =
        heads == s.kv_heads || heads * s.tokens >= kTilesAtOnce * key_tile(s.head_dim);
    const std::int64_t bytes = heads * head_bytes;
    if (enough && bytes <= s.stored_limit_bytes && (chosen == 0 || bytes <= kWantedBytes)) {
      chosen = heads;
    }
  }
  return chosen;
}

/// Gives score gradients their room.
void plan_stored(const AttentionLayout& s, Room& room) {
  const bool uniform = s.uniform_length > 0;
  const std::int64_t of_document = stored_blocks(s.causal, s.uniform_length);
  const std::int64_t of_head = uniform ? s.documents * of_document : packed_blocks(s);
  const std::int64_t head_bytes = s.heads / s.kv_heads * of_head * kStoredBytes;
  const int at_once = heads_at_once(s, head_bytes);
  if (at_once == 0) return;
  room.kv_heads_at_once = at_once;
  room.stored_per_head = uniform ? of_document : of_head;
  room.end += static_cast<std::size_t>(at_once * head_bytes);
}

/// Blocks of dq's sums of all heads.
std::int64_t sum_blocks(const AttentionLayout& s, const Room& room) {
  return s.heads * (room.padded_rows / 64) * (s.head_dim / 64);
}

std::int64_t sum_bytes(const AttentionLayout& s, const Room& room) {
  return sum_blocks(s, room) * kSumBlock * std::int64_t{sizeof(float)};
}

/// Keys of a query on average from which dq of heads of 64 is made inside: a prototype was on an
/// H200 15 % quicker at 2048 (causal, T 4096), 21 % slower at 512.
constexpr std::int64_t kKeysInside = 2048;

/// And tokens of documents from which that of heads of 128 is: 6 % quicker at 8192; prototypes were
/// slower at 4096, and by 10 % where documents are short and uneven.
constexpr std::int64_t kLengthInside = 8192;

/// Whether the kernel that owns keys makes dq: where that is quicker, if its sums take no more than
/// score gradients may. With heads of 128 a batch counts as long documents if it has no room for
/// shorter ones: the pairs expected of packed batches are those of the longest. Heads of 256 have
/// one way: their stored gradients are half as many bytes a product.
bool makes_dq_inside(const AttentionLayout& s, const Room& room) {
  if (s.head_dim == 256) return false;
  if (s.query_gradient != QueryGradient::by_shape) return s.query_gradient == QueryGradient::inside;
  if (sum_bytes(s, room) > kStoredGradientBytes) return false;
  return s.head_dim == 64 ? expected_pairs(s) >= kKeysInside * s.tokens
                          : s.tokens >= kLengthInside * s.documents;
}

/// Tiles of keys that a launch takes in pieces at most (least_in_pieces): never the last ones of a
/// document. Others are not: without a mask and in equal documents many tiles are as long as the
/// longest; dq made inside asks for one owner of keys; and with a part of the queries, lengths do
/// not tell the work.
int most_in_pieces(const AttentionLayout& s, const Room& room) {
  const std::int64_t longest = (s.tokens + 127) / 128;
  const int group = s.heads / s.kv_heads;
  const bool part = s.queries > 0 && s.queries < s.tokens;
  if (!s.causal || s.uniform_length > 0 || room.inside || part || group == 1) return 0;
  if (longest * group <= kLeastGain) return 0;
  const std::int64_t tiles = (longest - 1) * s.kv_heads * key_parts(s.head_dim);
  return static_cast<int>(std::min<std::int64_t>(kSharedBy / 2 - 1, tiles));
}

}  // namespace

bool has_fast_path(const AttentionLayout& s) {
  return s.storage == execution::Dtype::bf16 &&
         (s.head_dim == 64 || s.head_dim == 128 || s.head_dim == 256);
}

Room make_room(const AttentionLayout& s, bool backward) {
  Room room{};
  room.kv_heads_at_once = s.kv_heads;
  if (s.tokens == 0) return room;
  if (!has_fast_path(s)) {  // delta alone, unpadded
    if (backward) room.end = static_cast<std::size_t>(s.heads * s.tokens) * sizeof(float);
    return room;
  }
  const auto documents = static_cast<std::size_t>(all_documents(s));
  const auto heads = static_cast<std::size_t>(s.heads);
  const std::size_t table = s.uniform_length > 0 ? 0 : (documents + 1) * sizeof(int);
  const std::size_t backward_table = backward ? table : 0;
  if (backward) {
    room.padded_rows = s.uniform_length > 0
                           ? s.documents * ((s.uniform_length + 127) / 128 * 128)
                           : (s.tokens + std::int64_t{128} * all_documents(s)) / 64 * 64;
    room.inside = makes_dq_inside(s, room);
    room.tiles_in_pieces = most_in_pieces(s, room);
  }
  const int tickets = 3 * s.kv_heads;
  room.counters = tickets + (room.inside ? static_cast<int>(sum_blocks(s, room))
                                         : room.tiles_in_pieces * kPieceWarps);
  room.turns = static_cast<std::size_t>(tickets) * sizeof(int);
  room.starts = aligned(static_cast<std::size_t>(room.counters) * sizeof(int));
  room.order = aligned(room.starts + table);
  room.first = aligned(room.order + table);
  room.wide = aligned(room.first + table);
  room.stored_at = aligned(room.wide + backward_table);
  room.limits = aligned(room.stored_at + backward_table);
  room.in_pieces = aligned(room.limits + 2 * sizeof(int));
  room.lse2 = aligned(room.in_pieces + (room.tiles_in_pieces > 0 ? table : 0));
  room.end = room.lse2;
  if (!backward) return room;
  const std::size_t statistics = heads * static_cast<std::size_t>(room.padded_rows) * sizeof(float);
  room.delta = aligned(room.lse2 + statistics);
  room.piece_sums = aligned(room.delta + statistics);
  const auto pieces = static_cast<std::size_t>(room.tiles_in_pieces) *
                      static_cast<std::size_t>(s.heads / s.kv_heads);
  const auto keys = static_cast<std::size_t>(key_tile(s.head_dim));
  room.stored =
      room.piece_sums + pieces * 2 * keys * static_cast<std::size_t>(s.head_dim) * sizeof(float);
  room.sums = room.end = room.stored;
  if (room.inside) {
    room.end += static_cast<std::size_t>(sum_bytes(s, room));
  } else {
    plan_stored(s, room);
  }
  return room;
}

}  // namespace attention

std::size_t attention_forward_cuda_workspace_bytes(const AttentionLayout& layout) {
  return attention::make_room(layout, false).end;
}

std::size_t attention_backward_cuda_workspace_bytes(const AttentionLayout& layout) {
  return attention::make_room(layout, true).end;
}

}  // namespace stowage::kernels
