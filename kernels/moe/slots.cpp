#include "kernels/moe/slots.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

std::string SendSlots::fault() const {
  return share > 0 && slots >= 0 ? "" : "a rank without experts, or slots below 0";
}

Cost SendSlots::cost() const { return {0, bytes(rows * (topk + ranks) + ranks, Dtype::int32)}; }

Cost ReceiveSlots::cost() const {
  return {0, bytes((2 * rows + slots) * ranks * topk, Dtype::int32)};
}

STOWAGE_OPERATOR_RUN(SendSlots)
STOWAGE_OPERATOR_RUN(ReceiveSlots)

}  // namespace stowage::kernels
