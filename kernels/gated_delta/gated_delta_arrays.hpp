#pragma once

#include <cstddef>
#include <cstdint>

#include "execution/parallel_for.hpp"
#include "kernels/workspace_parts.hpp"

/// The chunked form of the gated delta rule, written once over a *team* that shares a room: the
/// threads of a block on a GPU (gated_delta_team.cuh), or one thread of a test in fp64.
///
/// Within a chunk of 64 tokens, with P_ij = the decay from token j to i (0 between documents),
/// a_i = the decay from before the chunk to i, c_j = from j to the chunk's end, b = over the chunk:
///
///   L_ij = beta_i (k_i k_j) P_ij (j < i),  T = (I + L)^-1,  M_ij = (q_i k_j) P_ij (j <= i)
///   U = T diag(beta) (V - diag(a) K S^T),  Y = diag(a) Q S^T + M U,  S' = b S + U^T diag(c) K
///
/// (arXiv 2412.06464, section 3.2.) With a decay for each column of K (arXiv 2510.26692)
/// P, a, c and b are factors of each column n: L_ij is beta_i times the sum of k_in k_jn P_ijn, and
/// so on (gated_delta_channels.hpp). Columns of V are independent given K, so a team takes one head
/// and 16 of them, and walks over the chunks with its part of S in its room.
namespace stowage::kernels::gated_delta {

constexpr int kC = 64;      // tokens of a chunk
constexpr int kSlice = 16;  // columns of V that a team takes: the side of a tensor-core tile

STOWAGE_PORTABLE constexpr int padded(int columns) { return (columns + 15) / 16 * 16; }
/// Elements between rows in a room: no two rows of a tile in one bank, whole float4.
STOWAGE_PORTABLE constexpr int pitch(int columns) { return columns + 4; }
STOWAGE_PORTABLE constexpr int slices(int dim) { return (dim + kSlice - 1) / kSlice; }

/// What prepare() leaves of a token, by chunk and head.
enum Field {
  kLog,    // log of its decay; none if each column has one
  kBeta,   // write strength
  kEnter,  // a; if each column has one, 1 where it is not 0
  kLeave,  // c; the same
  kQNorm,  // factor of q
  kKNorm,  // factor of k
  kFields
};

/// Operands of all kernels; S storage, A sums. What is not there is null.
template <class S, class A>
struct Arrays {
  int tokens = 0, key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  bool channel_decay = false;
  const S* qkv = nullptr;
  const S* ba = nullptr;
  std::int64_t qkv_stride = 0, ba_stride = 0;
  const S* a = nullptr;
  const S* a_log = nullptr;
  const S* dt_bias = nullptr;
  const std::int32_t* seq_idx = nullptr;
  const A* initial_state = nullptr;
  S* y = nullptr;
  A* final_state = nullptr;
  A* transition = nullptr;  ///< (Hv, N, N) of a segment
  const S* dy = nullptr;
  S* dqkv = nullptr;
  S* dba = nullptr;
  S* da = nullptr;
  std::int64_t dqkv_stride = 0, dba_stride = 0;
  A* da_log = nullptr;
  A* ddt_bias = nullptr;
  bool accumulate = false;
  const A* dfinal_state = nullptr;
  A* dinitial_state = nullptr;
  // The workspace, by chunk and head.
  A* fields = nullptr;    ///< (kFields, 64)
  A* inverse = nullptr;   ///< (count, side()) rows of T
  A* scores = nullptr;    ///< (count, side()) rows of M
  A* sums = nullptr;      ///< (64, N) see ChannelDecays
  A* partials = nullptr;  ///< (parts()) of da_log, ddt_bias
  A* states = nullptr;    ///< (P, N) S before the chunk
  A* dstates = nullptr;   ///< (P, N) gradient of S behind the chunk
  A* u = nullptr;         ///< (64, P) U
  A* du = nullptr;        ///< (64, P) T^T dU
  A* dkeys = nullptr;     ///< (2, 64, N) by chunk and key head: gradients of q and k behind norms

  STOWAGE_PORTABLE int chunks() const { return (tokens + kC - 1) / kC; }
  STOWAGE_PORTABLE std::int64_t at(int chunk, int head) const {
    return static_cast<std::int64_t>(chunk) * value_heads + head;
  }
  STOWAGE_PORTABLE const A* field(int chunk, int head, Field which) const {
    return fields + (at(chunk, head) * kFields + which) * kC;
  }
  /// The rows of T or of M of a chunk's tokens.
  STOWAGE_PORTABLE std::int64_t tile(int chunk, int head) const {
    return (static_cast<std::int64_t>(chunk) * kC * value_heads + head * count(chunk)) * side();
  }
  /// Columns of T and M that can be other than 0.
  STOWAGE_PORTABLE int side() const { return tokens < kC ? padded(tokens) : kC; }
  STOWAGE_PORTABLE std::int64_t state(int chunk, int head) const {
    return at(chunk, head) * value_dim * key_dim;
  }
  /// Rows of U of a chunk and head.
  STOWAGE_PORTABLE std::int64_t rows(int chunk, int head) const {
    return at(chunk, head) * kC * value_dim;
  }
  STOWAGE_PORTABLE int key_head(int head) const { return head / (value_heads / key_heads); }
  /// Sums over chunks of each head.
  STOWAGE_PORTABLE int parts() const { return 1 + (channel_decay ? key_dim : 1); }
  /// The first of the elements of a token and head, of those of a.
  STOWAGE_PORTABLE std::int64_t channel(int token, int head) const {
    return (static_cast<std::int64_t>(token) * value_heads + head) * key_dim;
  }
  STOWAGE_PORTABLE std::int64_t keys() const {
    return static_cast<std::int64_t>(key_heads) * key_dim;
  }
  /// Tokens of a chunk that there are.
  STOWAGE_PORTABLE int count(int chunk) const {
    const int left = tokens - chunk * kC;
    return left < kC ? left : kC;
  }
  /// The document of a token of a chunk; those behind the last are of the last one's.
  STOWAGE_PORTABLE std::int32_t document(int chunk, int i) const {
    const int t = chunk * kC + i;
    return seq_idx[t < tokens ? t : tokens - 1];
  }
  /// The document that the state before a chunk is of.
  STOWAGE_PORTABLE std::int32_t entering(int chunk) const {
    return seq_idx[chunk > 0 ? chunk * kC - 1 : 0];
  }

  /// Bytes of the workspace; sets what lies in it. @param whole with what the backward keeps
  std::size_t place(void* workspace, bool whole) {
    WorkspaceParts parts(workspace);
    const std::int64_t all = at(chunks(), 0);  // chunks of all heads
    const std::int64_t tiles = static_cast<std::int64_t>(tokens) * value_heads * side();
    parts.take(fields, all * kFields * kC);
    parts.take(inverse, tiles);
    parts.take(scores, tiles);
    if (channel_decay) parts.take(sums, all * kC * key_dim);
    if (!whole) return parts.bytes();
    parts.take(partials, this->parts() * all);
    parts.take(states, all * value_dim * key_dim);
    parts.take(dstates, all * value_dim * key_dim);
    parts.take(u, all * kC * value_dim);
    parts.take(du, all * kC * value_dim);
    if (channel_decay) parts.take(dkeys, all / value_heads * key_heads * 2 * kC * key_dim);
    return parts.bytes();
  }
};

/// Pieces of a team's room.
template <class A>
struct Room {
  A* next;

  STOWAGE_PORTABLE A* tile(int rows, int columns) {
    A* const taken = next;
    next += rows * pitch(columns);
    return taken;
  }
  STOWAGE_PORTABLE A* vector() {
    A* const taken = next;
    next += kC;
    return taken;
  }
};

/// Elements of the rooms of the kernels, for heads of q and k of `key_dim`.
constexpr std::int64_t prepare_room(int key_dim, bool channel_decay) {
  const int rows = channel_decay ? 4 * kC + kSlice : 2 * kC;
  return rows * pitch(padded(key_dim)) + 2 * kC * pitch(kC) + 4 * kC;
}
constexpr std::int64_t scan_room(int key_dim, bool channel_decay) {
  return ((channel_decay ? 4 : 2) * kC + kSlice) * pitch(padded(key_dim)) + 2 * kC * pitch(kC) +
         4 * kC * pitch(kSlice);
}
constexpr std::int64_t channel_gradients_room(int key_dim) {
  return (5 * kC + kSlice + 1) * pitch(padded(key_dim)) + 2 * kC * pitch(kC) +
         3 * kC * pitch(kSlice) + 4 * kC;
}
constexpr std::int64_t gradients_room(int key_dim) {
  return (5 * kC + kSlice) * pitch(padded(key_dim)) + 2 * kC * pitch(kC) + 3 * kC * pitch(kSlice) +
         7 * kC;
}

}  // namespace stowage::kernels::gated_delta
