#pragma once

#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// What a step needs to know when the capacity for routed rows may be smaller than their number
/// (permute.hpp): the products stay within the capacity, and all ranks learn that it was too small
/// for one of them, and the demand of each.

/// Capacity of a rank: so many routed rows, and slots for what it sends to another rank
/// (slots.hpp), 0 if rows do not travel by slots.
struct ExpertCapacity {
  std::int64_t rows = 0, slots = 0;
};

/// offsets (E + 1) = wanted (E + 1), all int32, but none above `capacity`: what the products of
/// experts may touch. demand (3) int32, updated: its first numbers are the most rows that were ever
/// wanted, of all experts and of one.
void limit_offsets(execution::Queue& queue, const execution::View& wanted, std::int64_t capacity,
                   const execution::View& offsets, const execution::View& demand);

/// demand (3) int32, updated: its third number is the most slots that were ever wanted, of `wanted`
/// (W) int32.
void limit_slots(execution::Queue& queue, const execution::View& wanted,
                 const execution::View& demand);

/// What rank `rank` of W adds to the ranks' sums: rows (1 + 3 W) accum = whether more than the
/// capacity was wanted, 0 or 1, then each number of `demand` (3) int32 in the rank's place of W;
/// 0 elsewhere.
void tell_rows(execution::Queue& queue, const execution::View& demand,
               const ExpertCapacity& capacity, std::int64_t rank, const execution::View& rows);

/// From the sums: need (4) int32 = ranks without enough capacity, the most rows that a rank wanted,
/// those of one expert, and the most slots. step_ok (1) int32 becomes 0 if there is such a rank.
void judge_rows(execution::Queue& queue, const execution::View& rows, const execution::View& need,
                const execution::View& step_ok);

execution::Cost limit_offsets_cost(std::int64_t experts);
execution::Cost limit_slots_cost(std::int64_t ranks);
execution::Cost tell_rows_cost(std::int64_t ranks, execution::Dtype accumulation);

}  // namespace stowage::kernels
