#pragma once

#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// Where rows go that are sent once to each of W ranks that has some of their experts. Of what a
/// rank sends to another there are S slots, all of which travel: rank r of W gets part r, and has
/// the parts of all in their order. Rows lie in a part in their own order, one behind the other,
/// without a gap; those that find no slot stay behind, and limit_slots (capacity.hpp) says so.
/// Sender and receiver find the same slots, each by a scan of the choices that it has.

/// From indices (n, R) int32 (-1: not routed), of experts of which rank r has [r share, (r + 1)
/// share): row_slot (n, W) int32: slot in [r S, (r + 1) S) of a row for rank r; -1: none of its
/// experts, or no slot left. wanted (W) int32: rows that have experts of a rank.
void send_slots(execution::Queue& queue, const execution::View& indices, std::int64_t share,
                std::int64_t slots, const execution::View& row_slot, const execution::View& wanted);

/// From local (W n, R) int32, what localise (shards.hpp) makes of all ranks' indices, and
/// token_row (W n, R) int32 by permute_index: slot_row (W S, R) int32: the routed rows of what
/// lies in a slot; -1: another rank's choice, or nothing in the slot.
void receive_slots(execution::Queue& queue, const execution::View& local,
                   const execution::View& token_row, std::int64_t ranks,
                   const execution::View& slot_row);

execution::Cost send_slots_cost(std::int64_t rows, std::int64_t topk, std::int64_t ranks);
execution::Cost receive_slots_cost(std::int64_t rows, std::int64_t topk, std::int64_t slots);

/// Host references.
void send_slots_ref(std::int64_t n, std::int64_t topk, std::int64_t ranks, std::int64_t share,
                    std::int64_t slots, const std::int32_t* indices, std::int32_t* row_slot,
                    std::int32_t* wanted);
void receive_slots_ref(std::int64_t n, std::int64_t topk, std::int64_t ranks, std::int64_t slots,
                       const std::int32_t* local, const std::int32_t* token_row,
                       std::int32_t* slot_row);

}  // namespace stowage::kernels
