#include <algorithm>

#include "execution/host_loops.hpp"
#include "kernels/moe/slots.hpp"

namespace stowage::kernels {

template <class S>
void SendSlots::reference(const Operands<Pointers<S>>& o) const {
  execution::host_for(ranks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t rank = begin; rank < end; ++rank) {
      std::int32_t next = 0;
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int32_t* const of_row = o.indices + row * topk;
        const bool goes = std::any_of(of_row, of_row + topk, [&](std::int32_t expert) {
          return expert >= rank * share && expert < (rank + 1) * share;
        });
        const bool fits = goes && next < slots;
        o.row_slot[row * ranks + rank] = fits ? static_cast<std::int32_t>(rank * slots) + next : -1;
        if (goes) ++next;
      }
      o.wanted[rank] = next;
    }
  });
}

template <class S>
void ReceiveSlots::reference(const Operands<Pointers<S>>& o) const {
  execution::host_for(ranks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t rank = begin; rank < end; ++rank) {
      std::int64_t slot = rank * slots;
      const std::int64_t last = (rank + 1) * slots;
      for (std::int64_t row = rank * rows; row < (rank + 1) * rows && slot < last; ++row) {
        const std::int32_t* const of_row = o.local + row * topk;
        if (std::all_of(of_row, of_row + topk, [](std::int32_t e) { return e < 0; })) continue;
        std::copy_n(o.token_row + row * topk, topk, o.slot_row + slot++ * topk);
      }
      std::fill(o.slot_row + slot * topk, o.slot_row + last * topk, -1);
    }
  });
}

STOWAGE_REFERENCES(SendSlots)
STOWAGE_REFERENCES(ReceiveSlots)

}  // namespace stowage::kernels
