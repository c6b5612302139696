#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

/// What one element of the operators of capacity.hpp does, for both backends.
namespace stowage::kernels::detail {

struct LimitOffsets {
  const std::int32_t* wanted;
  std::int32_t* offsets;
  std::int32_t* demand;
  std::int64_t experts, capacity;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    offsets[i] = wanted[i] <= capacity ? wanted[i] : static_cast<std::int32_t>(capacity);
    if (i > 0) return;
    // A rank has few experts: one thread looks at them all.
    raise(demand[0], wanted[experts]);
    for (std::int64_t e = 0; e < experts; ++e) raise(demand[1], wanted[e + 1] - wanted[e]);
  }
  STOWAGE_PORTABLE static void raise(std::int32_t& value, std::int32_t other) {
    if (other > value) value = other;
  }
};

struct LimitSlots {
  const std::int32_t* wanted;
  std::int32_t* demand;
  std::int64_t ranks;

  STOWAGE_PORTABLE void operator()(std::int64_t) const {
    for (std::int64_t r = 0; r < ranks; ++r) LimitOffsets::raise(demand[2], wanted[r]);
  }
};

template <class A>
struct TellRows {
  const std::int32_t* demand;
  A* rows;
  std::int64_t ranks, rank, capacity, slots;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    if (i == 0)
      rows[i] = demand[0] > capacity || demand[2] > slots ? A{1} : A{0};
    else  // NOLINTNEXTLINE(bugprone-integer-division): the division is an index
      rows[i] = (i - 1) % ranks == rank ? static_cast<A>(demand[(i - 1) / ranks]) : A{0};
  }
};

/// Element 0 judges, 1 to 3 find the largest of W numbers.
template <class A>
struct JudgeRows {
  const A* rows;
  std::int32_t* need;
  std::int32_t* step_ok;
  std::int64_t ranks;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    A largest = rows[0];
    const A* of_ranks = rows + 1 + (i - 1) * ranks;
    for (std::int64_t r = 0; i > 0 && r < ranks; ++r)
      if (r == 0 || of_ranks[r] > largest) largest = of_ranks[r];
    need[i] = static_cast<std::int32_t>(largest);
    if (i == 0 && rows[0] > 0) *step_ok = 0;
  }
};

}  // namespace stowage::kernels::detail
