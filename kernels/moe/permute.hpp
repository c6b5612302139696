#pragma once

#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// Routed rows: the (token, slot) pairs of indices (n, R), sorted by expert, in order of token then
/// slot within one. Expert e owns rows [offsets[e], offsets[e + 1]). There is room for C of them,
/// at most n * R; those from offsets[E] to C hold nothing. With room for all, every pair has a row;
/// with less, the last ones may have none, and limit_offsets (capacity.hpp) says so.

/// From indices (n, R) int32 (-1: not routed) and weights (n, R) accum:
/// offsets (E + 1) int32, of all rows, which may be more than C; token_row (n, R) int32: row of a
/// pair, -1 where not routed or without room; row_weight (C) accum: weight of a row, 0 beyond
/// offsets[E].
void permute_index(execution::Queue& queue, const execution::View& indices,
                   const execution::View& offsets, const execution::View& token_row,
                   const execution::View& row_weight, const execution::View& weights);

/// xs (C, D)[token_row[t, r]] = x (n, D)[t]; rows that no pair has are not touched. It is also
/// the backward of combine_rows: x = dout, xs = dys.
void gather_rows(execution::Queue& queue, const execution::View& x,
                 const execution::View& token_row, const execution::View& xs);

/// out (n, D)[t] = sum over slots r, in order, of ys (C, D)[token_row[t, r]], in the accumulation
/// type, rounded once; added to out when `accumulate`. Pairs that are not routed add
/// nothing: without `accumulate` a tail token's row becomes 0. It is also the backward of
/// gather_rows: ys = dxs, out = dx.
void combine_rows(execution::Queue& queue, const execution::View& ys,
                  const execution::View& token_row, const execution::View& out, bool accumulate);

execution::Cost permute_index_cost(std::int64_t tokens, std::int64_t topk, std::int64_t experts,
                                   execution::Dtype accumulation);
/// Costs with `rows` of the tokens * R pairs routed.
execution::Cost gather_rows_cost(std::int64_t tokens, std::int64_t topk, std::int64_t rows,
                                 std::int64_t width, execution::Dtype storage);
execution::Cost combine_rows_cost(std::int64_t tokens, std::int64_t topk, std::int64_t rows,
                                  std::int64_t width, execution::Dtype storage, bool accumulate);

/// Host references; A is float or double, S a storage type.
template <class A>
void permute_index_ref(std::int64_t tokens, std::int64_t topk, std::int64_t experts,
                       std::int64_t room, const std::int32_t* indices, std::int32_t* offsets,
                       std::int32_t* token_row, A* row_weight, const A* weights);
template <class S>
void gather_rows_ref(std::int64_t tokens, std::int64_t topk, std::int64_t width, const S* x,
                     const std::int32_t* token_row, S* xs);
template <class S>
void combine_rows_ref(std::int64_t tokens, std::int64_t topk, std::int64_t width, const S* ys,
                      const std::int32_t* token_row, S* out, bool accumulate);

}  // namespace stowage::kernels
