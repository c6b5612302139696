// Slots of rows on a GPU are the host's.

#include "ctest/kernels/operator_check.hpp"
#include "ctest/kernels/slots_problem.hpp"

namespace stowage::kernels::test {
namespace {

TEST(slots_gpu, slots_are_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const SlotsProblem& p : slots_problems(random))
    for (std::int64_t rank = 0; rank < p.ranks; ++rank) {
      SCOPED_TRACE(p.text());
      const SlotsProblem::Sent sent = p.make_sent();
      expect_host_bits(
          p.sends(), {.indices = p.indices[rank], .row_slot = sent.row_slot, .wanted = sent.wanted},
          3);
      expect_host_bits(LimitSlots{p.ranks},
                       {.wanted = sent.wanted, .demand = int32_array({0, 0, 4})}, 3);
      expect_host_bits(
          p.receives(),
          {.local = p.local(rank), .token_row = p.token_row, .slot_row = p.make_received()}, 3);
    }
}

}  // namespace
}  // namespace stowage::kernels::test
