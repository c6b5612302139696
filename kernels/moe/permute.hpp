#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Routed rows: the (token, slot) pairs of indices (n, R), sorted by expert, in order of token then
/// slot within one. Expert e owns rows [offsets[e], offsets[e + 1]). There is room for C of them,
/// at most n * R; those from offsets[E] to C hold nothing. With room for all, every pair has a row;
/// with less, the last ones may have none, and LimitOffsets (capacity.hpp) says so.
struct PermuteIndex {
  static constexpr std::string_view kName = "permute_index";
  /// Of device code: a block holds one count for each expert and warp in shared memory.
  static constexpr std::int64_t kMostExperts = 1024, kMostPairs = 1LL << 30;
  std::int64_t tokens, topk, experts, rows;  ///< n, R, E and C
  execution::Dtype storage;

  template <class T>
  struct Operands {
    Of<T, const std::int32_t> indices;  ///< -1: not routed
    Of<T, std::int32_t> offsets;        ///< of all rows, which may be more than C
    Of<T, std::int32_t> token_row;      ///< row of a pair, -1 where not routed or without room
    SumsOut<T> row_weight;              ///< weight of a row, 0 beyond offsets[E]
    SumsIn<T> weights;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype accum = execution::accumulation(storage),
                           int32 = execution::Dtype::int32;
    f(in("indices", int32, {tokens, topk}), o.indices...);
    f(out("offsets", int32, {experts + 1}), o.offsets...);
    f(out("token_row", int32, {tokens, topk}), o.token_row...);
    f(out("row_weight", accum, {rows}), o.row_weight...);
    f(in("weights", accum, {tokens, topk}), o.weights...);
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// xs (C, D)[token_row[t, r]] = x (n, D)[t]; rows that no pair has are not touched. It is also the
/// backward of CombineRows: x = dout, xs = dys.
struct GatherRows {
  static constexpr std::string_view kName = "gather_rows";
  std::int64_t tokens, topk, rows, width;  ///< n, R, C and D
  std::int64_t routed;                     ///< pairs that have a row, for the cost
  execution::Dtype storage;

  template <class T>
  struct Operands {
    In<T> x;
    Of<T, const std::int32_t> token_row;
    Out<T> xs;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {tokens, width}), o.x...);
    f(in("token_row", execution::Dtype::int32, {tokens, topk}), o.token_row...);
    f(out("xs", storage, {rows, width}), o.xs...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// out (n, D)[t] = sum over slots r, in order, of ys (C, D)[token_row[t, r]], in the accumulation
/// type, rounded once; added to out when `accumulate`. Pairs that are not routed add nothing:
/// without `accumulate` a tail token's row becomes 0. It is also the backward of GatherRows: ys =
/// dxs, out = dx.
struct CombineRows {
  static constexpr std::string_view kName = "combine_rows";
  std::int64_t tokens, topk, rows, width;  ///< as of GatherRows
  std::int64_t routed;
  execution::Dtype storage;
  bool accumulate;

  template <class T>
  struct Operands {
    In<T> ys;
    RowsOfType<T, const std::int32_t> token_row;
    OutRows<T> out;
  };
  void each(auto&& f, auto&... o) const {
    f(in("ys", storage, {rows, width}), o.ys...);
    f(in("token_row", execution::Dtype::int32, {tokens, topk}), o.token_row...);
    f(sum("out", accumulate, storage, {tokens, width}), o.out...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
