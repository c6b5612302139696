#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/attention/attention_cuda.hpp"

/// What attention_cuda.cpp calls: the launches of each kernel, without checks. Private to this
/// folder. Batch strides are as used: never 0 where documents are equal.
namespace stowage::kernels::attention {

/// How blocks share the tiles of one attention pass, passed to its kernels by value.
///
/// A tile is `tile_rows` rows of one document and one head. Tiles are taken in this order:
/// documents by decreasing length; in a document, sections of heads whose rows stay in L2 together;
/// in a section, the longest tiles first, all heads of the section side by side.
/// Blocks draw tickets from an atomic counter, so the order in time is free; results do not depend
/// on it. Tiles of keys may be in pieces, which are taken like tiles, behind the document's others.
struct TileSchedule {
  int* ticket;           // next tile; cleared by the first kernel of the call
  const int* order;      // (documents) document at each place, longest first; unread if uniform
  const int* first;      // (documents + 1) tiles of one head before each place
  const int* begin;      // one value or null: tiles of one head before it belong to another pass,
  const int* end;        // and those from this one on
  const int* starts;     // (documents + 1) first rows, unread if uniform
  const int* in_pieces;  // (documents + 1) tiles of one head in pieces before each place, or null
  int documents;
  int uniform_length;  // > 0: all documents have it
  int tile_rows;
  int heads;              // tiles of one row range: query heads, or kv heads for key tiles
  int heads_per_section;  // divides heads
  bool longest_last;      // the last rows of a document are the longest tiles (causal queries)
};

/// The tokens that are queries: row i of q, o, d_o and dq is token first + i. Addresses of these
/// are given as if token 0 were there. Maps have the rows alone: what lies outside comes in as 0.
struct QueryRange {
  int first, end;
};

struct ForwardParameters {
  TileSchedule schedule;
  void* o;
  float* lse;  // (heads, queries)
  HeadStrides o_strides;
  QueryRange queries;
  int heads_per_kv;
  float scale_log2;  // scale * log2(e)
  float scale;
};

/// Keys of one step of the forward for this head dimension: as many as fit.
constexpr int forward_keys(int head_dim) { return head_dim == 256 ? 80 : 128; }

/// Rows of a query tile of the forward for this head dimension.
int forward_tile_rows(int head_dim);

/// What is written for packed documents (attention_order.cuh); null: not needed. Of a forward the
/// first ones alone, up to `first`.
struct ScheduleTables {
  int* ticket;     // of a forward, cleared
  int* starts;     // (documents + 1) cu_seqlens, with the tail as one more document
  int* order;      // as in TileSchedule
  int* first;      // for tiles of `tile_rows`
  int* wide;       // and for tiles of stored_rows
  int* stored_at;  // (documents) first dS block of the document in its head's room; < 0: not stored
  int* limits;     // (2) first tile of one head whose document is stored, in `first` and in `wide`
  int* in_pieces;  // as in TileSchedule, null: no tile may be
  int kv_heads;    // of a launch of part 1, as often as its schedule counts them
  int heads_per_kv;
  const int* cu_seqlens;  // (documents), null: equal lengths, nothing is written
  int documents;          // with the tail
  int tokens;
  int tile_rows;
  std::int64_t capacity;  // dS blocks of one head's room
  bool causal;
};

cudaError_t launch_attention_schedule(const ScheduleTables& tables, cudaStream_t stream);

cudaError_t launch_attention_forward_sm90(int head_dim, bool causal, const CUtensorMap& q,
                                          const CUtensorMap& k, const CUtensorMap& v,
                                          const ForwardParameters& parameters, int blocks,
                                          cudaStream_t stream);

struct DeltaParameters {
  const void* o;
  const void* d_o;
  const float* lse;  // (heads, queries)
  float* lse2;       // (heads, padded_rows), +inf for tokens that are no queries
  float* delta;      // (heads, padded_rows)
  int* ticket;       // counters of the later parts and turns, cleared here
  int tickets;
  const int* cu_seqlens;  // (documents), unread if uniform
  HeadStrides o_strides, d_o_strides;
  QueryRange queries;
  std::int64_t padded_rows;
  int heads;
  int documents;  // with the tail
  int tokens;
  int uniform_length;
};

cudaError_t launch_attention_delta(int head_dim, const DeltaParameters& parameters,
                                   const ScheduleTables& tables, cudaStream_t stream);

struct BackwardParameters {
  TileSchedule schedule;
  void* dq;
  void* dk;
  void* dv;
  HeadStrides dq_strides, dk_strides, dv_strides;
  bool fp32_keys;      // dk and dv are fp32, else bf16
  const float* lse2;   // (heads, padded_rows)
  const float* delta;  // (heads, padded_rows)
  QueryRange queries;
  std::int64_t padded_rows;
  unsigned char* stored;         // dS blocks, or null: part 2 recomputes
  std::int64_t stored_per_head;  // blocks of a head, and of a document if they are equal
  const int* stored_at;          // packed: see ScheduleTables
  float* sums;  // dq in fp32, blocks of kSumBlock: (heads, padded_rows / 64, P / 64)
  int* turns;   // shares added to each block of sums; 0 before the launch
  // Of tiles in pieces, those of a kv head side by side: dk and dv of each piece's query head in
  // fp32, (tiles, kPieceWarps, heads_per_kv, 2, P / 8, 32) float4, with P = 256 one of both for
  // each warp; and the pieces that are there, (tiles, kPieceWarps), 0 before and behind the launch.
  float* piece_sums;
  int* arrivals;
  const int* starts;
  int uniform_length;
  int heads;
  int heads_per_kv;
  float scale_log2;  // scale * log2(e)
  float scale;
};

/// Tensor maps of the backward; the box rows differ from part to part.
struct BackwardMaps {
  CUtensorMap q, k, v, d_o;
};

/// Sums of the kernels that make dq inside to dq.
struct RoundParameters {
  const float* sums;  // as in BackwardParameters
  void* dq;
  const int* starts;
  HeadStrides dq_strides;
  QueryRange queries;
  std::int64_t padded_rows;
  int heads;
  int documents;
  int uniform_length;
  float scale;
};

cudaError_t launch_attention_backward_round(int head_dim, const RoundParameters& parameters,
                                            cudaStream_t stream);

/// The path without tensor cores serves both directions with one set.
struct SimpleParameters {
  const void *q, *k, *v, *d_o;
  void *o, *dq, *dk, *dv;
  float* lse;             // (heads, queries)
  float* delta;           // (heads, queries), backward's scratch
  const int* cu_seqlens;  // (documents + 1), unread if uniform; the tail is a document of its own
  HeadStrides q_strides, k_strides, v_strides, o_strides, d_o_strides;
  HeadStrides dq_strides, dk_strides, dv_strides;
  std::int64_t tokens;       // rows of k and v
  int queries, first_query;  // rows of q: tokens from first_query on
  int heads, heads_per_kv, head_dim;
  int documents, uniform_length;
  float scale;
  bool causal;
  bool fp32;       // storage, else bf16
  bool fp32_keys;  // dk and dv, else as the storage
};

cudaError_t launch_attention_simple_forward(const SimpleParameters& parameters,
                                            cudaStream_t stream);
cudaError_t launch_attention_simple_backward(const SimpleParameters& parameters,
                                             cudaStream_t stream);

/// Queries of a step of part 1 for this head dimension.
constexpr int backward_queries(int head_dim) { return head_dim == 64 ? 128 : 64; }
/// Queries of a tile of part 2 from the stored dS.
constexpr int stored_rows(int head_dim) { return head_dim == 256 ? 192 : 256; }
/// Keys of a step of part 2 by recomputation.
constexpr int recompute_keys(int head_dim) { return head_dim == 256 ? 48 : 128; }

constexpr int kInsideQueries = 64;   // queries of a step where dq is made inside
constexpr int kRecomputeRows = 128;  // queries of a tile of part 2, by recomputation

cudaError_t launch_attention_backward_kv_sm90(int head_dim, bool causal, const BackwardMaps& maps,
                                              const BackwardParameters& parameters, int blocks,
                                              cudaStream_t stream);
cudaError_t launch_attention_backward_kv256_sm90(bool causal, const BackwardMaps& maps,
                                                 const BackwardParameters& parameters, int blocks,
                                                 cudaStream_t stream);
cudaError_t launch_attention_backward_inside64_sm90(bool causal, const BackwardMaps& maps,
                                                    const BackwardParameters& parameters,
                                                    int blocks, cudaStream_t stream);
cudaError_t launch_attention_backward_inside128_sm90(bool causal, const BackwardMaps& maps,
                                                     const BackwardParameters& parameters,
                                                     int blocks, cudaStream_t stream);
cudaError_t launch_attention_backward_q_sm90(int head_dim, bool causal, const BackwardMaps& maps,
                                             const BackwardParameters& parameters, int blocks,
                                             cudaStream_t stream);
cudaError_t launch_attention_backward_stored_sm90(int head_dim, bool causal,
                                                  const BackwardMaps& maps,
                                                  const BackwardParameters& parameters, int blocks,
                                                  cudaStream_t stream);

}  // namespace stowage::kernels::attention
