#include <algorithm>

#include "execution/host_loops.hpp"
#include "kernels/moe/slots.hpp"

namespace stowage::kernels {

void send_slots_ref(std::int64_t n, std::int64_t topk, std::int64_t ranks, std::int64_t share,
                    std::int64_t slots, const std::int32_t* indices, std::int32_t* row_slot,
                    std::int32_t* wanted) {
  execution::host_for(ranks, 1, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t rank = begin; rank < end; ++rank) {
      std::int32_t next = 0;
      for (std::int64_t row = 0; row < n; ++row) {
        const std::int32_t* const of_row = indices + row * topk;
        const bool goes = std::any_of(of_row, of_row + topk, [=](std::int32_t expert) {
          return expert >= rank * share && expert < (rank + 1) * share;
        });
        const bool fits = goes && next < slots;
        row_slot[row * ranks + rank] = fits ? static_cast<std::int32_t>(rank * slots) + next : -1;
        if (goes) ++next;
      }
      wanted[rank] = next;
    }
  });
}

void receive_slots_ref(std::int64_t n, std::int64_t topk, std::int64_t ranks, std::int64_t slots,
                       const std::int32_t* local, const std::int32_t* token_row,
                       std::int32_t* slot_row) {
  execution::host_for(ranks, 1, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t rank = begin; rank < end; ++rank) {
      std::int64_t slot = rank * slots;
      const std::int64_t last = (rank + 1) * slots;
      for (std::int64_t row = rank * n; row < (rank + 1) * n && slot < last; ++row) {
        const std::int32_t* const of_row = local + row * topk;
        if (std::all_of(of_row, of_row + topk, [](std::int32_t e) { return e < 0; })) continue;
        std::copy_n(token_row + row * topk, topk, slot_row + slot++ * topk);
      }
      std::fill(slot_row + slot * topk, slot_row + last * topk, -1);
    }
  });
}

}  // namespace stowage::kernels
