#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// What ranks need that have a part of the vocabulary or of the experts: ids of the whole become
/// ids of the part, and values by routed row become values by (token, choice) pair, which is how
/// ranks exchange them. Everything here is elementwise or a count, so nothing depends on an order.

/// local[i] = ids[i] - first where that is in [0, count), else -1: another rank's.
struct Localise {
  static constexpr std::string_view kName = "localise";
  std::int64_t elements, first, count;

  template <class T>
  struct Operands {
    Of<T, const std::int32_t> ids;
    Of<T, std::int32_t> local;
  };
  void each(auto&& f, auto&... o) const {
    f(in("ids", execution::Dtype::int32, {elements}).in_any_shape(), o.ids...);
    f(out("local", execution::Dtype::int32, {elements}).in_any_shape(), o.local...);
  }
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// pairs = rows[token_row], 0 where token_row is negative.
struct PairValues {
  static constexpr std::string_view kName = "pair_values";
  std::int64_t rows, pairs;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    SumsIn<T> rows;
    Of<T, const std::int32_t> token_row;
    SumsOut<T> pairs;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("rows", sums, {rows}), o.rows...);
    f(in("token_row", execution::Dtype::int32, {pairs}).in_any_shape(), o.token_row...);
    f(out("pairs", sums, {pairs}).in_any_shape(), o.pairs...);
  }
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// rows[i] = i, or -1 where indices[i] is negative: each (token, choice) pair is a row of its own.
struct PairRows {
  static constexpr std::string_view kName = "pair_rows";
  std::int64_t pairs;

  template <class T>
  struct Operands {
    Of<T, const std::int32_t> indices;
    Of<T, std::int32_t> rows;
  };
  void each(auto&& f, auto&... o) const {
    f(in("indices", execution::Dtype::int32, {pairs}).in_any_shape(), o.indices...);
    f(out("rows", execution::Dtype::int32, {pairs}).in_any_shape(), o.rows...);
  }
  execution::Cost cost() const { return Localise{pairs, 0, 0}.cost(); }
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// offsets[e]: how many of `indices` are below e; negative ones do not count.
struct ExpertOffsets {
  static constexpr std::string_view kName = "expert_offsets";
  static constexpr std::int64_t kMostExperts = 1024;  ///< of device code
  std::int64_t pairs, experts;
  execution::Dtype storage = execution::Dtype::fp32;  ///< of no operand

  template <class T>
  struct Operands {
    RowsOfType<T, const std::int32_t> indices;
    Of<T, std::int32_t> offsets;
  };
  void each(auto&& f, auto&... o) const {
    f(in("indices", execution::Dtype::int32, {pairs}).in_any_shape(), o.indices...);
    f(out("offsets", execution::Dtype::int32, {experts + 1}), o.offsets...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
