#pragma once

#include <cstdint>

/// The launches of slots.hpp's operators on device memory. `stream` is a cudaStream_t, the result a
/// cudaError_t.
namespace stowage::kernels::moe {

int launch_send_slots(std::int64_t n, std::int64_t topk, std::int64_t ranks, std::int64_t share,
                      std::int64_t slots, const std::int32_t* indices, std::int32_t* row_slot,
                      std::int32_t* wanted, void* stream);
int launch_receive_slots(std::int64_t n, std::int64_t topk, std::int64_t ranks, std::int64_t slots,
                         const std::int32_t* local, const std::int32_t* token_row,
                         std::int32_t* slot_row, void* stream);

}  // namespace stowage::kernels::moe
