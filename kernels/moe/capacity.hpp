#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// What a step needs to know when the capacity for routed rows may be smaller than their number
/// (permute.hpp): the products stay within the capacity, and all ranks learn that it was too small
/// for one of them, and the demand of each.

/// Capacity of a rank: so many routed rows, and slots for what it sends to another rank
/// (slots.hpp), 0 if rows do not travel by slots.
struct ExpertCapacity {
  std::int64_t rows = 0, slots = 0;
};

/// offsets (E + 1) = wanted, but none above `capacity`: what the products of experts may touch. The
/// first numbers of demand are the most rows that were ever wanted, of all experts and of one.
struct LimitOffsets {
  static constexpr std::string_view kName = "limit_offsets";
  std::int64_t experts, capacity;

  template <class T>
  struct Operands {
    Of<T, const std::int32_t> wanted;
    Of<T, std::int32_t> offsets, demand;
  };
  void each(auto&& f, auto&... o) const {
    f(in("wanted", execution::Dtype::int32, {experts + 1}), o.wanted...);
    f(out("offsets", execution::Dtype::int32, {experts + 1}), o.offsets...);
    f(sum("demand", true, execution::Dtype::int32, {3}), o.demand...);
  }
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// The third number of demand is the most slots that were ever wanted, of `wanted` (W).
struct LimitSlots {
  static constexpr std::string_view kName = "limit_slots";
  std::int64_t ranks;

  template <class T>
  struct Operands {
    Of<T, const std::int32_t> wanted;
    Of<T, std::int32_t> demand;
  };
  void each(auto&& f, auto&... o) const {
    f(in("wanted", execution::Dtype::int32, {ranks}), o.wanted...);
    f(sum("demand", true, execution::Dtype::int32, {3}), o.demand...);
  }
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// What rank `rank` of W adds to the ranks' sums: rows (1 + 3 W) = whether more than the capacity
/// was wanted, 0 or 1, then each number of `demand` in the rank's place of W; 0 elsewhere.
struct TellRows {
  static constexpr std::string_view kName = "tell_rows";
  std::int64_t ranks, rank;
  ExpertCapacity capacity;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    Of<T, const std::int32_t> demand;
    SumsOut<T> rows;
  };
  void each(auto&& f, auto&... o) const {
    f(in("demand", execution::Dtype::int32, {3}), o.demand...);
    f(out("rows", execution::accumulation(storage), {1 + 3 * ranks}), o.rows...);
  }
  std::string fault() const;
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// From the sums: need (4) = ranks without enough capacity, the most rows that a rank wanted, those
/// of one expert, and the most slots. step_ok becomes 0 if there is such a rank.
struct JudgeRows {
  static constexpr std::string_view kName = "judge_rows";
  std::int64_t ranks;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    SumsIn<T> rows;
    Of<T, std::int32_t> need, step_ok;
  };
  void each(auto&& f, auto&... o) const {
    f(in("rows", execution::accumulation(storage), {1 + 3 * ranks}), o.rows...);
    f(out("need", execution::Dtype::int32, {4}), o.need...);
    f(sum("step_ok", true, execution::Dtype::int32, {1}), o.step_ok...);
  }
  execution::Cost cost() const { return {}; }
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

}  // namespace stowage::kernels
