// What stowage_bench_comm calls wrong, against collectives written here as loops over all ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "drivers/bench_comm/check.hpp"

namespace stowage::drivers {
namespace {

constexpr std::uint64_t kSeed = 11;

class comm_check : public testing::Test {
 protected:
  std::int64_t wrong(const Definition& definition, const std::vector<float>& output) {
    return checker.count_wrong(*queue, definition, output.data(),
                               static_cast<std::int64_t>(output.size()));
  }

  std::unique_ptr<execution::Backend> backend = execution::make_host_backend();
  std::unique_ptr<execution::Queue> queue =
      backend->make_queue(execution::Lane::comm, "collectives");
  Checker checker{*backend};
};

std::vector<float> sent_by(int rank, std::int64_t count) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(sent(kSeed, rank, i));
  return all;
}

std::vector<float> part(const std::vector<float>& all, std::int64_t begin, std::int64_t count) {
  return {all.begin() + begin, all.begin() + begin + count};
}

std::vector<float> sum_in_order(const std::vector<int>& order, std::int64_t count) {
  std::vector<float> sum = sent_by(order.front(), count);
  for (std::size_t r = 1; r < order.size(); ++r)
    for (std::int64_t i = 0; i < count; ++i) sum[i] += sent(kSeed, order[r], i);
  return sum;
}

std::vector<int> all_ranks(int ranks) {
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// The output of a rank, by the words of MPI's standard.
std::vector<float> output_of(Kind kind, int rank, int ranks, std::int64_t count) {
  std::vector<float> joined;
  const auto join = [&](const std::vector<float>& more) {
    joined.insert(joined.end(), more.begin(), more.end());
  };
  switch (kind) {
    case Kind::all_reduce:
      return sum_in_order(all_ranks(ranks), count);
    case Kind::reduce_scatter:
      return part(sum_in_order(all_ranks(ranks), count * ranks), rank * count, count);
    case Kind::all_gather:
      for (int r = 0; r < ranks; ++r) join(sent_by(r, count));
      return joined;
    case Kind::all_to_all:
      for (int r = 0; r < ranks; ++r) join(part(sent_by(r, count * ranks), rank * count, count));
      return joined;
    case Kind::broadcast:
      return sent_by(kRoot, count);
    case Kind::exchange:
      break;
  }
  return sent_by(rank == 0 ? ranks - 1 : rank - 1, count);
}

TEST_F(comm_check, what_a_collective_does_is_right_and_nothing_else) {
  for (const int ranks : {2, 3, 4, 8})
    for (const Kind kind : kKinds)
      for (const bool in_place : {false, true}) {
        if (in_place && !can_be_in_place(kind)) continue;
        for (int rank = 0; rank < ranks; ++rank) {
          const Operands at = operands(kind, 4099, in_place, nullptr, nullptr, rank, ranks);
          const Definition defined = definition(kind, at, rank, ranks, false, kSeed);
          std::vector<float> output = output_of(kind, rank, ranks, at.count);
          const auto where = testing::Message() << name(kind) << " rank " << rank << "/" << ranks;
          ASSERT_EQ(static_cast<std::int64_t>(output.size()), at.outputs) << where;
          EXPECT_EQ(wrong(defined, output), 0) << where;
          // One bit of one element, the first and the last.
          for (const std::size_t one : {std::size_t{0}, output.size() - 1}) {
            std::vector<float> flipped = output;
            flipped[one] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(flipped[one]) ^ 1U);
            EXPECT_EQ(wrong(defined, flipped), 1) << where;
          }
          EXPECT_EQ(wrong(defined, sent_by(kNobody, at.outputs)), at.outputs) << where;
        }
      }
}

TEST_F(comm_check, a_sum_in_another_order_is_wrong_unless_a_library_chose_it) {
  constexpr std::int64_t kCount = 10000;
  for (const int ranks : {3, 8}) {
    std::vector<int> backwards = all_ranks(ranks);
    std::reverse(backwards.begin(), backwards.end());
    const std::vector<float> sum = sum_in_order(backwards, kCount);
    const Operands at =
        operands(Kind::all_reduce, kCount * sizeof(float), true, nullptr, nullptr, 0, 1);
    EXPECT_GT(wrong(definition(Kind::all_reduce, at, 0, ranks, false, kSeed), sum), kCount / 100);
    EXPECT_EQ(wrong(definition(Kind::all_reduce, at, 0, ranks, true, kSeed), sum), 0);
    // A rank that is left out is no rounding.
    backwards.pop_back();
    EXPECT_GT(wrong(definition(Kind::all_reduce, at, 0, ranks, true, kSeed),
                    sum_in_order(backwards, kCount)),
              kCount * 99 / 100);
  }
}

TEST_F(comm_check, what_is_no_number_is_wrong) {
  for (const bool any_order : {false, true}) {
    std::vector<float> sum = sum_in_order(all_ranks(2), 100);
    sum[41] = std::numeric_limits<float>::quiet_NaN();
    sum[42] = std::numeric_limits<float>::infinity();
    const Operands at = operands(Kind::all_reduce, 400, true, nullptr, nullptr, 0, 1);
    EXPECT_EQ(wrong(definition(Kind::all_reduce, at, 0, 2, any_order, kSeed), sum), 2);
  }
}

TEST_F(comm_check, what_is_not_written_is_wrong) {
  std::vector<float> from(300), to(300);
  const Operands at = operands(Kind::exchange, from.size() * sizeof(float), false,
                               reinterpret_cast<std::byte*>(from.data()),
                               reinterpret_cast<std::byte*>(to.data()), 0, 1);
  const Definition itself = definition(Kind::exchange, at, 0, 1, false, kSeed);
  EXPECT_EQ(checker.check(*queue, itself, at, 0,
                          [&](execution::Queue& q) { q.copy(to.data(), from.data(), at.bytes); }),
            0);
  EXPECT_EQ(checker.check(*queue, itself, at, 0,
                          [&](execution::Queue& q) {
                            q.copy(to.data(), from.data(), at.bytes - sizeof(float));
                          }),
            1);
  EXPECT_EQ(checker.check(*queue, itself, at, 0, [](execution::Queue&) {}), 300);
}

}  // namespace
}  // namespace stowage::drivers
