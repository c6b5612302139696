#include "kernels/moe/slots.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/moe/slots_launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

template <class S>
int SendSlots::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return moe::launch_send_slots(rows, topk, ranks, share, slots, o.indices, o.row_slot, o.wanted,
                                stream);
}

std::string SendSlots::fault() const {
  return share > 0 && slots >= 0 ? "" : "a rank without experts, or slots below 0";
}

Cost SendSlots::cost() const { return {0, bytes(rows * (topk + ranks) + ranks, Dtype::int32)}; }

template <class S>
int ReceiveSlots::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return moe::launch_receive_slots(rows, topk, ranks, slots, o.local, o.token_row, o.slot_row,
                                   stream);
}

Cost ReceiveSlots::cost() const {
  return {0, bytes((2 * rows + slots) * ranks * topk, Dtype::int32)};
}

STOWAGE_OPERATOR_RUN(SendSlots)
STOWAGE_OPERATOR_RUN(ReceiveSlots)

}  // namespace stowage::kernels
