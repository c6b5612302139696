// Rows that go once to each rank that has some of their experts: what senders and receivers find
// of their own choices is one and the same, with slots for all and with too few.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ctest/kernels/slots_problem.hpp"

namespace stowage::kernels::test {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Rows of a rank that have experts of another, in their order.
std::vector<std::int64_t> rows_for(const SlotsProblem& p, std::int64_t from, std::int64_t to) {
  const Values chosen = p.indices[index(from)].values();
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < p.n; ++row)
    for (std::int64_t r = 0; r < p.topk; ++r) {
      const double expert = chosen[index(row * p.topk + r)];
      if (expert < 0 || std::lround(expert) / p.share() != to) continue;
      rows.push_back(row);
      break;
    }
  return rows;
}

TEST(slots, each_row_has_one_for_each_rank_with_some_of_its_experts) {
  Random random;
  for (SlotsProblem& p : slots_problems(random))
    for (std::int64_t rank = 0; rank < p.ranks; ++rank) {
      const SlotsProblem::Sent sent = p.send(rank);
      Values wanted, slots(index(p.n * p.ranks), -1);
      for (std::int64_t to = 0; to < p.ranks; ++to) {
        const std::vector<std::int64_t> rows = rows_for(p, rank, to);
        wanted.push_back(static_cast<double>(rows.size()));
        for (std::size_t k = 0; k < rows.size() && k < index(p.slots); ++k)
          slots[index(rows[k] * p.ranks + to)] = static_cast<double>(to * p.slots) + double(k);
      }
      EXPECT_EQ(sent.wanted.values(), wanted) << p.text();
      EXPECT_EQ(sent.row_slot.values(), slots) << p.text();
    }
}

TEST(slots, receivers_find_the_rows_that_senders_put_there) {
  Random random;
  for (SlotsProblem& p : slots_problems(random))
    for (std::int64_t rank = 0; rank < p.ranks; ++rank) {
      Values expected(index(p.ranks * p.slots * p.topk), -1);
      const Values token_row = p.token_row.values();
      for (std::int64_t from = 0; from < p.ranks; ++from) {
        const std::vector<std::int64_t> rows = rows_for(p, from, rank);
        for (std::size_t k = 0; k < rows.size() && k < index(p.slots); ++k)
          for (std::int64_t r = 0; r < p.topk; ++r)
            expected[index((from * p.slots + std::int64_t(k)) * p.topk + r)] =
                token_row[index((from * p.n + rows[k]) * p.topk + r)];
      }
      EXPECT_EQ(p.receive(rank).values(), expected) << p.text() << ", rank " << rank;
    }
}

TEST(slots, the_most_that_a_pair_of_ranks_wants_is_kept) {
  const Array wanted = int32_array({3, 7, 5});
  for (const std::int32_t before : {6, 9}) {
    const Array most = int32_array({1, 2, before});
    run(LimitSlots{.ranks = 3}, {.wanted = wanted, .demand = most});
    EXPECT_EQ(most.values(), (Values{1, 2, before > 7 ? 9.0 : 7.0}));
  }
}

}  // namespace
}  // namespace stowage::kernels::test
