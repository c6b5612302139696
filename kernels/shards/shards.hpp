#pragma once

#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// What ranks need that have a part of the vocabulary or of the experts: ids of the whole become
/// ids of the part, and values by routed row become values by (token, choice) pair, which is how
/// ranks exchange them. Everything here is elementwise or a count, so nothing depends on an order.

/// local[i] = ids[i] - first where that is in [0, count), else -1: another rank's. Both int32, of
/// one number of elements.
void localise(execution::Queue& queue, const execution::View& ids, std::int64_t first,
              std::int64_t count, const execution::View& local);

/// pairs (n, R) = rows (C)[token_row (n, R)], 0 where token_row is negative; rows and pairs of fp32
/// or fp64.
void pair_values(execution::Queue& queue, const execution::View& rows,
                 const execution::View& token_row, const execution::View& pairs);

/// rows[i] = i, or -1 where indices[i] is negative: each (token, choice) pair is a row of its own.
void pair_rows(execution::Queue& queue, const execution::View& indices,
               const execution::View& rows);

/// offsets (E + 1) int32: how many of `indices`, int32, are below e; negative ones do not count.
void expert_offsets(execution::Queue& queue, const execution::View& indices,
                    const execution::View& offsets);

execution::Cost localise_cost(std::int64_t elements);
execution::Cost pair_values_cost(std::int64_t pairs, execution::Dtype accumulation);
execution::Cost expert_offsets_cost(std::int64_t pairs, std::int64_t experts);

}  // namespace stowage::kernels
