#include "kernels/moe/slots.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/moe/slots_launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

void send_slots(Queue& queue, const View& indices, std::int64_t share, std::int64_t slots,
                const View& row_slot, const View& wanted) {
  const Operands operands("send_slots");
  operands.rank(indices, "indices", 2);
  operands.rank(wanted, "wanted", 1);
  const std::int64_t n = indices.extent(0), topk = indices.extent(1), ranks = wanted.extent(0);
  operands.require(share > 0 && slots >= 0, "a rank without experts, or slots below 0");
  operands.check(indices, "indices", Dtype::int32, {n, topk});
  operands.check(row_slot, "row_slot", Dtype::int32, {n, ranks});
  operands.check(wanted, "wanted", Dtype::int32, {ranks});
  run(
      queue, "send_slots", Dtype::fp32,
      [=, indices = Address(indices), row_slot = Address(row_slot),
       wanted = Address(wanted)]<class S>() {
        send_slots_ref(n, topk, ranks, share, slots, indices.as<const std::int32_t>(),
                       row_slot.as<std::int32_t>(), wanted.as<std::int32_t>());
      },
      [&]<class S>(void* stream) {
        return moe::launch_send_slots(n, topk, ranks, share, slots,
                                      indices.as<const std::int32_t>(), row_slot.as<std::int32_t>(),
                                      wanted.as<std::int32_t>(), stream);
      });
}

void receive_slots(Queue& queue, const View& local, const View& token_row, std::int64_t ranks,
                   const View& slot_row) {
  const Operands operands("receive_slots");
  operands.rank(local, "local", 2);
  operands.rank(slot_row, "slot_row", 2);
  operands.require(ranks > 0 && local.extent(0) % ranks == 0 && slot_row.extent(0) % ranks == 0,
                   "rows or slots are not as many of each rank");
  const std::int64_t n = local.extent(0) / ranks, topk = local.extent(1);
  const std::int64_t slots = slot_row.extent(0) / ranks;
  operands.check(local, "local", Dtype::int32, {ranks * n, topk});
  operands.same(token_row, "token_row", local);
  operands.check(slot_row, "slot_row", Dtype::int32, {ranks * slots, topk});
  run(
      queue, "receive_slots", Dtype::fp32,
      [=, local = Address(local), token_row = Address(token_row),
       slot_row = Address(slot_row)]<class S>() {
        receive_slots_ref(n, topk, ranks, slots, local.as<const std::int32_t>(),
                          token_row.as<const std::int32_t>(), slot_row.as<std::int32_t>());
      },
      [&]<class S>(void* stream) {
        return moe::launch_receive_slots(n, topk, ranks, slots, local.as<const std::int32_t>(),
                                         token_row.as<const std::int32_t>(),
                                         slot_row.as<std::int32_t>(), stream);
      });
}

Cost send_slots_cost(std::int64_t rows, std::int64_t topk, std::int64_t ranks) {
  return {0, bytes(rows * (topk + ranks) + ranks, Dtype::int32)};
}

Cost receive_slots_cost(std::int64_t rows, std::int64_t topk, std::int64_t slots) {
  return {0, bytes((2 * rows + slots) * topk, Dtype::int32)};
}

}  // namespace stowage::kernels
