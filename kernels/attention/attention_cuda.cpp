#include "kernels/attention/attention_cuda.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <source_location>

#include "execution/error.hpp"
#include "kernels/attention/attention_launch.hpp"
#include "kernels/hopper/tensor_map.hpp"
#include "kernels/machine.hpp"
#include "kernels/operands.hpp"

namespace stowage::kernels {
namespace {

using namespace attention;

void check_layout(const AttentionLayout& s) {
  STOWAGE_ASSERT(s.tokens > 0 && s.tokens < (std::int64_t{1} << 30), "attention over {} tokens",
                 s.tokens);
  (void)Operands("attention").is_bf16(s.storage);
  STOWAGE_ASSERT(s.heads > 0 && s.scale > 0, "attention with {} heads and scale {}", s.heads,
                 s.scale);
  STOWAGE_ASSERT(s.kv_heads > 0 && s.heads % s.kv_heads == 0,
                 "{} query heads do not share {} key-value heads", s.heads, s.kv_heads);
  STOWAGE_ASSERT(s.head_dim > 0 && s.head_dim <= 256, "head dimension {} is not up to 256",
                 s.head_dim);
  STOWAGE_ASSERT(s.documents > 0, "attention over {} documents", s.documents);
  STOWAGE_ASSERT(s.first_query >= 0 && s.first_query + s.queries <= s.tokens,
                 "queries {} to {} of {} tokens", s.first_query, s.first_query + s.queries,
                 s.tokens);
  STOWAGE_ASSERT(s.uniform_length <= 0 || s.uniform_length * s.documents == s.tokens,
                 "{} documents of {} tokens in {} rows", s.documents, s.uniform_length, s.tokens);
}

void check_launch(cudaError_t status, const char* kernel) {
  if (status != cudaSuccess) [[unlikely]] {
    execution::throw_call_failed("CUDA", kernel, static_cast<long long>(status),
                                 cudaGetErrorString(status), std::source_location::current());
  }
}

/// Whether the tensor-core kernels serve these matrices: the copy engine and the 16-byte stores ask
/// for aligned rows of heads.
bool fast(const AttentionLayout& s, std::initializer_list<HeadStrides> strides,
          std::initializer_list<const void*> matrices) {
  const auto whole = [](const HeadStrides& m) {
    return m.row % 8 == 0 && m.head % 8 == 0 && m.batch % 8 == 0;
  };
  const auto aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  return machine().wgmma() && has_fast_path(s) &&
         std::all_of(strides.begin(), strides.end(), whole) &&
         std::all_of(matrices.begin(), matrices.end(), aligned);
}

/// The layout with the batch strides and the queries that are meant.
AttentionLayout resolved(AttentionLayout s) {
  if (s.queries == 0) s.queries = s.tokens;
  for (HeadStrides* m : {&s.q, &s.k, &s.v, &s.o, &s.d_o, &s.dq, &s.dk, &s.dv}) {
    m->batch = s.uniform_length > 0 ? m->batch_of(s.uniform_length) : 0;
  }
  return s;
}

/// Of equal documents, or of uneven ones if they all had the pairs expected of the batch.
std::int64_t document_length(const AttentionLayout& s) {
  if (s.uniform_length > 0) return s.uniform_length;
  return s.pairs > 0 ? std::min(s.tokens, (s.causal ? 2 : 1) * s.pairs / s.tokens + 1) : s.tokens;
}

/// Bytes of a row that tiles of one kv head read again: of keys and values; or, by the tiles of
/// keys that make dq inside, of the queries of its group, d_o, and dq's sums in fp32.
int bytes_read_again(const AttentionLayout& s, bool inside) {
  return inside ? s.heads / s.kv_heads * s.head_dim * (2 + 2 + 4) : s.head_dim * (2 + 2);
}

/// Bytes of rows that tiles read again side by side: half of the L2 cache. Where dq is made inside,
/// more: tiles of a head follow one another closely, so that what they read again is small, and
/// with fewer of them at once fewer wait for turns.
constexpr double kReadAgain = 24e6;
constexpr double kReadAgainInside = 72e6;

/// Kv heads side by side where dq is made inside, however many bytes that is: with fewer, more than
/// a fourth of the multiprocessors stand in one queue for turns. What long rows of wide heads cost
/// when they are read again is little beside their products. Measured (NOTES.md).
constexpr int kHeadsInside = 4;

/// Heads whose rows are read side by side: as many as these bytes allow, whole groups of query
/// heads, a divisor of `heads`.
int heads_per_section(const AttentionLayout& s, int heads, bool inside) {
  const double kv_bytes = static_cast<double>(document_length(s)) * bytes_read_again(s, inside);
  const int fit = static_cast<int>((inside ? kReadAgainInside : kReadAgain) / kv_bytes);
  int kv = std::clamp(fit, std::min(inside ? kHeadsInside : 1, s.kv_heads), s.kv_heads);
  while (s.kv_heads % kv != 0) --kv;
  return heads / s.kv_heads * kv;
}

template <class T>
T* at(void* workspace, std::size_t offset) {
  return reinterpret_cast<T*>(static_cast<unsigned char*>(workspace) + offset);
}

TileSchedule make_schedule(const AttentionLayout& s, const Room& room, void* workspace, int ticket,
                           int tile_rows, int heads, bool longest_last) {
  TileSchedule schedule{};
  schedule.ticket = at<int>(workspace, room.tickets) + ticket;
  schedule.order = at<int>(workspace, room.order);
  schedule.first = at<int>(workspace, room.first);
  schedule.starts = at<int>(workspace, room.starts);
  schedule.documents = all_documents(s);
  schedule.uniform_length = static_cast<int>(std::max<std::int64_t>(s.uniform_length, 0));
  schedule.tile_rows = tile_rows;
  schedule.heads = heads;
  schedule.heads_per_section = heads_per_section(s, heads, room.inside);
  schedule.longest_last = longest_last;
  return schedule;
}

/// Where the order of packed documents is written.
ScheduleTables schedule_tables(const AttentionLayout& s, const Room& room, void* workspace,
                               const int* cu_seqlens, int tile_rows) {
  ScheduleTables tables{};
  tables.ticket = at<int>(workspace, room.tickets);
  tables.starts = at<int>(workspace, room.starts);
  tables.order = at<int>(workspace, room.order);
  tables.first = at<int>(workspace, room.first);
  tables.cu_seqlens = s.uniform_length > 0 ? nullptr : cu_seqlens;
  tables.documents = all_documents(s);
  tables.tokens = static_cast<int>(s.tokens);
  tables.tile_rows = tile_rows;
  tables.causal = s.causal;
  return tables;
}

/// A map of columns of a panel, rows, panels of 64 columns, heads and sequences, in boxes of `rows`
/// rows of one head, of a matrix of `tokens` rows.
CUtensorMap head_map(const AttentionLayout& s, std::int64_t tokens, const void* base,
                     const HeadStrides& m, int heads, int rows) {
  const auto whole = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  const std::int64_t length = s.uniform_length > 0 ? s.uniform_length : tokens;
  const std::uint64_t panels = whole(s.head_dim / 64);
  const std::uint64_t extents[] = {64, whole(length), panels, whole(heads), whole(tokens / length)};
  // A single head's or sequence's stride is unread, but has to be one.
  const std::uint64_t strides[] = {whole(m.row) * 2, 128, whole(heads > 1 ? m.head : m.row) * 2,
                                   whole(tokens > length ? m.batch : m.row) * 2};
  const std::uint32_t box[] = {64, static_cast<std::uint32_t>(rows),
                               static_cast<std::uint32_t>(panels), 1, 1};
  return hopper::make_tensor_map(hopper::TensorMapType::bf16, base, extents, strides, box,
                                 hopper::Swizzle::b128);
}

const void* from_head(const void* base, const HeadStrides& m, int head) {
  return static_cast<const std::uint16_t*>(base) + head * m.head;
}

void* from_head(void* base, const HeadStrides& m, int head, int bytes = 2) {
  return static_cast<unsigned char*>(base) + head * m.head * bytes;
}

QueryRange query_range(const AttentionLayout& s) {
  return {static_cast<int>(s.first_query), static_cast<int>(s.first_query + s.queries)};
}

/// Where token 0 would lie in a matrix of the queries.
template <class T>
T* from_token(const AttentionLayout& s, T* base, const HeadStrides& m) {
  const auto offset = static_cast<std::uintptr_t>(s.first_query * m.row) * 2;
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(base) - offset);
}

/// The maps for `kv_heads` kv heads from `kv`, with boxes of `query_rows` and of `key_rows`.
BackwardMaps backward_maps(const AttentionLayout& s, const AttentionBackwardPointers& a, int kv,
                           int kv_heads, int query_rows, int key_rows) {
  const int group = s.heads / s.kv_heads;
  const int head = kv * group;
  const int heads = kv_heads * group;
  BackwardMaps maps{};
  maps.q = head_map(s, s.queries, from_head(a.q, s.q, head), s.q, heads, query_rows);
  maps.d_o = head_map(s, s.queries, from_head(a.d_o, s.d_o, head), s.d_o, heads, query_rows);
  maps.k = head_map(s, s.tokens, from_head(a.k, s.k, kv), s.k, kv_heads, key_rows);
  maps.v = head_map(s, s.tokens, from_head(a.v, s.v, kv), s.v, kv_heads, key_rows);
  return maps;
}

/// What all later parts read: delta and log-sum-exp of all rows, tickets cleared, and the order of
/// packed documents.
void begin_backward(const AttentionLayout& s, const AttentionBackwardPointers& a, const Room& room,
                    cudaStream_t stream) {
  ScheduleTables tables = schedule_tables(s, room, a.workspace, a.cu_seqlens, kBackwardKeys);
  tables.wide = at<int>(a.workspace, room.wide);
  tables.stored_at = at<int>(a.workspace, room.stored_at);
  tables.limits = at<int>(a.workspace, room.limits);
  if (room.tiles_in_pieces > 0) tables.in_pieces = at<int>(a.workspace, room.in_pieces);
  tables.kv_heads = room.kv_heads_at_once * key_parts(s.head_dim);
  tables.heads_per_kv = s.heads / s.kv_heads;
  tables.capacity = room.stored_per_head;
  DeltaParameters p{};
  p.o = from_token(s, a.o, s.o);
  p.d_o = from_token(s, a.d_o, s.d_o);
  p.lse = a.lse;
  p.lse2 = at<float>(a.workspace, room.lse2);
  p.delta = at<float>(a.workspace, room.delta);
  p.ticket = at<int>(a.workspace, room.tickets);
  p.tickets = room.counters;
  p.cu_seqlens = a.cu_seqlens;
  p.o_strides = s.o;
  p.d_o_strides = s.d_o;
  p.queries = query_range(s);
  p.padded_rows = room.padded_rows;
  p.heads = s.heads;
  p.documents = all_documents(s);
  p.tokens = static_cast<int>(s.tokens);
  p.uniform_length = static_cast<int>(std::max<std::int64_t>(s.uniform_length, 0));
  check_launch(launch_attention_delta(s.head_dim, p, tables, stream), "attention_delta_kernel");
}

BackwardParameters backward_parameters(const AttentionLayout& s, const AttentionBackwardPointers& a,
                                       const Room& room, int kv) {
  const int group = s.heads / s.kv_heads;
  BackwardParameters p{};
  p.dq = from_token(s, from_head(a.dq, s.dq, kv * group), s.dq);
  const int key_bytes = s.fp32_key_gradients ? 4 : 2;
  p.dk = from_head(a.dk, s.dk, kv, key_bytes);
  p.dv = from_head(a.dv, s.dv, kv, key_bytes);
  p.fp32_keys = s.fp32_key_gradients;
  p.dq_strides = s.dq;
  p.dk_strides = s.dk;
  p.dv_strides = s.dv;
  p.lse2 = at<float>(a.workspace, room.lse2) + std::int64_t{kv} * group * room.padded_rows;
  p.delta = at<float>(a.workspace, room.delta) + std::int64_t{kv} * group * room.padded_rows;
  p.queries = query_range(s);
  p.padded_rows = room.padded_rows;
  p.stored = room.stored_per_head > 0 ? at<unsigned char>(a.workspace, room.stored) : nullptr;
  p.stored_per_head = room.stored_per_head;
  p.stored_at = at<int>(a.workspace, room.stored_at);
  p.sums = at<float>(a.workspace, room.sums);
  p.turns = at<int>(a.workspace, room.turns);
  p.piece_sums = at<float>(a.workspace, room.piece_sums);
  p.arrivals = at<int>(a.workspace, room.turns);
  p.starts = at<int>(a.workspace, room.starts);
  p.uniform_length = static_cast<int>(std::max<std::int64_t>(s.uniform_length, 0));
  p.heads = room.kv_heads_at_once * group;
  p.heads_per_kv = group;
  p.scale = s.scale;
  p.scale_log2 = s.scale * std::numbers::log2e_v<float>;
  return p;
}

/// Both parts for the kv heads from `kv` that are taken at once, and the query heads that read
/// them.
void backward_heads(const AttentionLayout& s, const AttentionBackwardPointers& a, const Room& room,
                    int kv, cudaStream_t stream) {
  const int kv_heads = room.kv_heads_at_once;
  AttentionLayout part = s;
  part.heads = kv_heads * (s.heads / s.kv_heads);
  part.kv_heads = kv_heads;
  const int blocks = machine().multiprocessors;
  const auto maps = [&](int query_rows, int key_rows) {
    return backward_maps(s, a, kv, kv_heads, query_rows, key_rows);
  };
  const auto schedule = [&](int ticket, int rows, int heads, bool longest_last) {
    return make_schedule(part, room, a.workspace, 3 * kv + ticket, rows, heads, longest_last);
  };
  BackwardParameters p = backward_parameters(s, a, room, kv);
  p.schedule = schedule(0, kBackwardKeys, kv_heads * key_parts(s.head_dim), false);
  if (room.tiles_in_pieces > 0) p.schedule.in_pieces = at<int>(a.workspace, room.in_pieces);
  const BackwardMaps key_maps = maps(backward_queries(s.head_dim), key_tile(s.head_dim));
  check_launch(
      s.head_dim == 256
          ? launch_attention_backward_kv256_sm90(s.causal, key_maps, p, blocks, stream)
          : launch_attention_backward_kv_sm90(s.head_dim, s.causal, key_maps, p, blocks, stream),
      "attention_backward_kv_kernel");

  const bool stored = room.stored_per_head > 0;
  const bool packed = s.uniform_length <= 0;
  const int* limits = at<int>(a.workspace, room.limits);
  if (packed || !stored) {
    p.schedule = schedule(1, kRecomputeRows, part.heads, s.causal);
    if (packed) p.schedule.end = limits;
    check_launch(launch_attention_backward_q_sm90(s.head_dim, s.causal,
                                                  maps(kRecomputeRows, recompute_keys(s.head_dim)),
                                                  p, blocks, stream),
                 "attention_backward_q_kernel");
  }
  if (stored) {
    p.schedule = schedule(2, stored_rows(s.head_dim), part.heads, s.causal);
    p.schedule.first = at<int>(a.workspace, room.wide);
    if (packed) p.schedule.begin = limits + 1;
    check_launch(launch_attention_backward_stored_sm90(
                     s.head_dim, s.causal, maps(kRecomputeRows, kBackwardKeys), p, blocks, stream),
                 "attention_backward_stored_kernel");
  }
}

/// dk, dv and the sums of dq for all heads, then dq from the sums.
void backward_inside(const AttentionLayout& s, const AttentionBackwardPointers& a, const Room& room,
                     cudaStream_t stream) {
  BackwardParameters p = backward_parameters(s, a, room, 0);
  p.schedule = make_schedule(s, room, a.workspace, 0, kBackwardKeys, s.kv_heads, false);
  const auto launch = s.head_dim == 64 ? launch_attention_backward_inside64_sm90
                                       : launch_attention_backward_inside128_sm90;
  check_launch(
      launch(s.causal, backward_maps(s, a, 0, s.kv_heads, kInsideQueries, key_tile(s.head_dim)), p,
             machine().multiprocessors, stream),
      "attention_backward_inside_kernel");
  RoundParameters round{};
  round.sums = p.sums;
  round.dq = p.dq;
  round.starts = p.starts;
  round.dq_strides = s.dq;
  round.queries = p.queries;
  round.padded_rows = p.padded_rows;
  round.heads = s.heads;
  round.documents = all_documents(s);
  round.uniform_length = p.uniform_length;
  round.scale = s.scale;
  check_launch(launch_attention_backward_round(s.head_dim, round, stream),
               "attention_backward_round_kernel");
}

SimpleParameters simple_parameters(const AttentionLayout& s) {
  SimpleParameters p{};
  p.q_strides = s.q;
  p.k_strides = s.k;
  p.v_strides = s.v;
  p.o_strides = s.o;
  p.d_o_strides = s.d_o;
  p.dq_strides = s.dq;
  p.dk_strides = s.dk;
  p.dv_strides = s.dv;
  p.tokens = s.tokens;
  p.queries = static_cast<int>(s.queries);
  p.first_query = static_cast<int>(s.first_query);
  p.heads = s.heads;
  p.heads_per_kv = s.heads / s.kv_heads;
  p.head_dim = s.head_dim;
  p.documents = s.documents;
  p.uniform_length = static_cast<int>(std::max<std::int64_t>(s.uniform_length, 0));
  p.scale = s.scale;
  p.causal = s.causal;
  p.fp32 = !Operands("attention").is_bf16(s.storage);
  p.fp32_keys = s.fp32_key_gradients;
  return p;
}

void simple_forward(const AttentionLayout& s, const AttentionForwardPointers& a,
                    cudaStream_t stream) {
  SimpleParameters p = simple_parameters(s);
  p.q = a.q;
  p.k = a.k;
  p.v = a.v;
  p.o = a.o;
  p.lse = a.lse;
  p.cu_seqlens = a.cu_seqlens;
  check_launch(launch_attention_simple_forward(p, stream), "attention_simple_forward_kernel");
}

void simple_backward(const AttentionLayout& s, const AttentionBackwardPointers& a, const Room& room,
                     cudaStream_t stream) {
  SimpleParameters p = simple_parameters(s);
  p.q = a.q;
  p.k = a.k;
  p.v = a.v;
  p.d_o = a.d_o;
  p.o = const_cast<void*>(a.o);
  p.lse = const_cast<float*>(a.lse);
  p.delta = at<float>(a.workspace, room.delta);
  p.cu_seqlens = a.cu_seqlens;
  p.dq = a.dq;
  p.dk = a.dk;
  p.dv = a.dv;
  check_launch(launch_attention_simple_backward(p, stream), "attention_simple_backward");
}

}  // namespace

void attention_forward_cuda(const AttentionLayout& asked, const AttentionForwardPointers& args,
                            cudaStream_t stream) {
  check_layout(asked);
  const AttentionLayout layout = resolved(asked);
  if (!fast(layout, {layout.q, layout.k, layout.v, layout.o}, {args.q, args.k, args.v, args.o})) {
    return simple_forward(layout, args, stream);
  }
  const int rows = forward_tile_rows(layout.head_dim);
  const int keys = forward_keys(layout.head_dim);
  const Room room = make_room(layout, false);
  ForwardParameters p{};
  p.schedule = make_schedule(layout, room, args.workspace, 0, rows, layout.heads, layout.causal);
  p.o = from_token(layout, args.o, layout.o);
  p.lse = args.lse;
  p.o_strides = layout.o;
  p.queries = query_range(layout);
  p.heads_per_kv = layout.heads / layout.kv_heads;
  p.scale = layout.scale;
  p.scale_log2 = layout.scale * std::numbers::log2e_v<float>;
  const CUtensorMap q = head_map(layout, layout.queries, args.q, layout.q, layout.heads, rows);
  const CUtensorMap k = head_map(layout, layout.tokens, args.k, layout.k, layout.kv_heads, keys);
  const CUtensorMap v = head_map(layout, layout.tokens, args.v, layout.v, layout.kv_heads, keys);
  check_launch(launch_attention_schedule(
                   schedule_tables(layout, room, args.workspace, args.cu_seqlens, rows), stream),
               "attention_schedule_kernel");
  check_launch(launch_attention_forward_sm90(layout.head_dim, layout.causal, q, k, v, p,
                                             machine().multiprocessors, stream),
               "attention_forward_kernel");
}

void attention_backward_cuda(const AttentionLayout& asked, const AttentionBackwardPointers& args,
                             cudaStream_t stream) {
  check_layout(asked);
  AttentionLayout layout = resolved(asked);
  // Places of stored score gradients count all queries of a document.
  if (layout.queries < layout.tokens) layout.stored_limit_bytes = 0;
  const Room room = make_room(layout, true);
  if (!fast(layout,
            {layout.q, layout.k, layout.v, layout.o, layout.d_o, layout.dq, layout.dk, layout.dv},
            {args.q, args.k, args.v, args.o, args.d_o, args.dq, args.dk, args.dv})) {
    return simple_backward(layout, args, room, stream);
  }
  begin_backward(layout, args, room, stream);
  if (room.inside) return backward_inside(layout, args, room, stream);
  for (int kv = 0; kv < layout.kv_heads; kv += room.kv_heads_at_once) {
    backward_heads(layout, args, room, kv, stream);
  }
}

}  // namespace stowage::kernels
