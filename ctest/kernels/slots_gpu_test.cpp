// Slots of rows on a GPU are the host's.

#include "ctest/kernels/device_mirror.hpp"
#include "ctest/kernels/slots_problem.hpp"

namespace stowage::kernels::test {
namespace {

void expect_same(const Array& actual, const Array& expected, const std::string& what) {
  EXPECT_TRUE(std::ranges::equal(bytes_of(actual), bytes_of(expected))) << what;
}

TEST(slots_gpu, slots_are_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const SlotsProblem& p : slots_problems(random))
    for (std::int64_t rank = 0; rank < p.ranks; ++rank) {
      const SlotsProblem::Sent expected = p.send(rank), sent = p.make_sent();
      const Array& indices = p.indices[rank];
      const Array here = p.local(rank), received = p.make_received();
      const Array most = int32_array({0, 0, 4}), most_here = int32_array({0, 0, 4});
      const std::vector<Array> results = on_gpu(
          [&](Queue& q, auto& at) {
            send_slots(q, at(indices), p.share(), p.slots, at(sent.row_slot), at(sent.wanted));
            limit_slots(q, at(sent.wanted), at(most));
            receive_slots(q, at(here), at(p.token_row), p.ranks, at(received));
          },
          {sent.row_slot, sent.wanted, most, received}, 3);
      on_queue([&](Queue& q) { limit_slots(q, expected.wanted, most_here); });
      expect_same(results[0], expected.row_slot, p.text() + ", row_slot");
      expect_same(results[1], expected.wanted, p.text() + ", wanted");
      expect_same(results[2], most_here, p.text() + ", most");
      expect_same(results[3], p.receive(rank), p.text() + ", received");
    }
}

}  // namespace
}  // namespace stowage::kernels::test
