#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Where rows go that are sent once to each of W ranks that has some of their experts. Of what a
/// rank sends to another there are S slots, all of which travel: rank r of W gets part r, and has
/// the parts of all in their order. Rows lie in a part in their own order, one behind the other,
/// without a gap; those that find no slot stay behind, and LimitSlots (capacity.hpp) says so.
/// Sender and receiver find the same slots, each by a scan of the choices that it has.

/// Of experts of which rank r has [r share, (r + 1) share).
struct SendSlots {
  static constexpr std::string_view kName = "send_slots";
  std::int64_t rows, topk, ranks, share, slots;       ///< n, R, W, and S
  execution::Dtype storage = execution::Dtype::fp32;  ///< of no operand

  template <class T>
  struct Operands {
    Of<T, const std::int32_t> indices;  ///< -1: not routed
    Of<T, std::int32_t> row_slot;  ///< slot in [r S, (r + 1) S) of a row for rank r; -1: none of
                                   ///< its experts, or no slot left
    Of<T, std::int32_t> wanted;    ///< rows that have experts of a rank
  };
  void each(auto&& f, auto&... o) const {
    f(in("indices", execution::Dtype::int32, {rows, topk}), o.indices...);
    f(out("row_slot", execution::Dtype::int32, {rows, ranks}), o.row_slot...);
    f(out("wanted", execution::Dtype::int32, {ranks}), o.wanted...);
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// slot_row: the routed rows of what lies in a slot; -1: another rank's choice, or nothing in it.
struct ReceiveSlots {
  static constexpr std::string_view kName = "receive_slots";
  std::int64_t rows, topk, ranks, slots;              ///< of each rank: n and S
  execution::Dtype storage = execution::Dtype::fp32;  ///< of no operand

  template <class T>
  struct Operands {
    Of<T, const std::int32_t> local;      ///< what Localise (shards.hpp) makes of all indices
    Of<T, const std::int32_t> token_row;  ///< by PermuteIndex
    Of<T, std::int32_t> slot_row;
  };
  void each(auto&& f, auto&... o) const {
    f(in("local", execution::Dtype::int32, {ranks * rows, topk}), o.local...);
    f(in("token_row", execution::Dtype::int32, {ranks * rows, topk}), o.token_row...);
    f(out("slot_row", execution::Dtype::int32, {ranks * slots, topk}), o.slot_row...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
