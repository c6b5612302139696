// Collectives whose ranks fetch from each other's memory, as copy engines do: a rank that fetches
// as late as it may still finds what was sent. Ranks are threads, so that the order can be forced.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "parallel/groups/collectives.hpp"

namespace stowage::parallel {
namespace {

using execution::Bf16;
using execution::Dtype;
using namespace std::chrono_literals;

/// Work is done as it is enqueued.
class Inline final : public execution::Queue {
 public:
  void* stream() const override { return nullptr; }
  void enqueue(execution::Function<void()> work) override { work(); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void copy_rows(void*, const void*, const execution::CountedRows&) override {
    FAIL() << "rows to count";
  }
  void record(execution::Event&, execution::EventUse) override {}
  void wait(execution::Event&, execution::EventUse) override {}
  void synchronize() override {}
};

/// What the ranks share.
struct Job {
  Job(int size, int late_rank, std::int64_t count)
      : ranks(size), late(late_rank), delay(2ms + count * 8ns), meeting(size), sent(size) {}

  int ranks, late;                 ///< one fetches late
  std::chrono::nanoseconds delay;  ///< so much, while others go on as far as they may
  std::barrier<> meeting;
  std::vector<std::vector<Transfer>> sent;  ///< by rank, of the move under way
};

/// Ranks meet before a move, and at the end if something moved since: no more than the transport of
/// copy engines promises.
class PullTransport final : public Transport {
 public:
  PullTransport(Job& job, int rank) : job_(job), rank_(rank) {}

  const std::string& group() const override { return group_; }
  int rank() const override { return rank_; }
  int size() const override { return job_.ranks; }
  int announce(const std::string&) override { return 0; }
  void begin(execution::Queue&, int) override { moving_ = false; }
  void end(execution::Queue&) override {
    if (moving_) job_.meeting.arrive_and_wait();
  }
  void move(execution::Queue&, std::span<const Transfer> transfers) override {
    job_.sent[static_cast<std::size_t>(rank_)] = {transfers.begin(), transfers.end()};
    job_.meeting.arrive_and_wait();
    const std::vector<std::vector<Transfer>> sent = job_.sent;
    job_.meeting.arrive_and_wait();  // the lists are read, nothing is fetched yet
    if (rank_ == job_.late) std::this_thread::sleep_for(job_.delay);
    std::map<int, std::size_t> met;
    for (const Transfer& t : transfers)
      if (!t.sends) {
        const Transfer source = to_me(sent[static_cast<std::size_t>(t.peer)], met[t.peer]++);
        std::memcpy(t.data, source.data, t.bytes);
      }
    moving_ = !transfers.empty();
  }

 private:
  /// The k-th that goes to this rank.
  Transfer to_me(const std::vector<Transfer>& sent, std::size_t k) const {
    for (const Transfer& t : sent)
      if (t.sends && t.peer == rank_ && k-- == 0) return t;
    ADD_FAILURE() << "nothing was sent";
    return {};
  }

  Job& job_;
  int rank_;
  bool moving_ = false;
  std::string group_ = "data";
};

/// Some sixteenths: cheap, for there are many.
float draw(int rank, std::int64_t i) {
  const auto mixed = static_cast<std::uint32_t>(i * 40503 + rank * 9176 + 77) * 2654435761U;
  return static_cast<float>(static_cast<int>(mixed >> 21) - 1024) / 16;
}

/// The sum of element i in rank order, of what each rank sends.
float sum_of(int ranks, std::int64_t i, bool rounded) {
  float all = 0;
  for (int r = 0; r < ranks; ++r) {
    const float one = rounded ? static_cast<float>(Bf16(draw(r, i))) : draw(r, i);
    all = r == 0 ? one : all + one;
  }
  return all;
}

struct Shape {
  int ranks;
  std::int64_t count;
};

std::string text(const Shape& shape) {
  return std::to_string(shape.ranks) + "_ranks_" + std::to_string(shape.count) + "_elements";
}

class pulled_collectives : public ::testing::TestWithParam<Shape> {
 protected:
  /// On all ranks, with each of them late in turn: fills `data`, calls, and checks what is there.
  template <class Call, class Check>
  void run(const Call& call, const Check& check) {
    const auto [ranks, count] = GetParam();
    for (int late = 0; late < ranks; ++late) {
      Job job(ranks, late, count);
      std::vector<std::thread> threads;
      for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank, ranks = ranks, count = count] {
          Inline queue;
          const Collectives collectives(std::make_shared<PullTransport>(job, rank));
          std::vector<float> data(static_cast<std::size_t>(count));
          std::vector<std::byte> room(
              std::max(reduce_workspace_bytes(count, Dtype::fp32, Dtype::bf16, ranks),
                       reduce_workspace_bytes(count, Dtype::fp32, Dtype::fp32, ranks)));
          for (int call_index = 0; call_index < 2; ++call_index) {
            for (std::int64_t i = 0; i < count; ++i)
              data[static_cast<std::size_t>(i)] = draw(rank, i);
            call(collectives, queue, data, room.data());
            EXPECT_TRUE(check(rank, data)) << "rank " << rank << ", late " << late;
            // What is over may be written at once.
            std::fill(data.begin(), data.end(), -1.0F);
            std::fill(room.begin(), room.end(), std::byte{0xff});
          }
        });
      for (std::thread& thread : threads) thread.join();
    }
  }

  /// Whether elements [begin, end) are sums.
  static bool are_sums(const std::vector<float>& data, std::int64_t begin, std::int64_t end,
                       bool rounded) {
    for (std::int64_t i = begin; i < end; ++i)
      if (data[static_cast<std::size_t>(i)] != sum_of(GetParam().ranks, i, rounded)) return false;
    return true;
  }
};

TEST_P(pulled_collectives, all_reduce) {
  for (const Dtype wire : {Dtype::fp32, Dtype::bf16})
    run(
        [&](const Collectives& group, execution::Queue& queue, std::vector<float>& data,
            void* room) {
          group.all_reduce(queue, 0, data.data(), GetParam().count, Dtype::fp32, Reduction::sum,
                           wire, room);
        },
        [&](int, const std::vector<float>& data) {
          return are_sums(data, 0, GetParam().count, wire == Dtype::bf16);
        });
}

TEST_P(pulled_collectives, reduce_scatter) {
  const auto [ranks, count] = GetParam();
  if (count % ranks != 0) GTEST_SKIP() << "no equal shares";
  const std::int64_t share = count / ranks;
  for (const Dtype wire : {Dtype::fp32, Dtype::bf16})
    run(
        [&, count = count](const Collectives& group, execution::Queue& queue,
                           std::vector<float>& data, void* room) {
          group.reduce_scatter(queue, 0, data.data(), count, Dtype::fp32, wire, room);
        },
        [&](int rank, const std::vector<float>& data) {
          return are_sums(data, rank * share, (rank + 1) * share, wire == Dtype::bf16);
        });
}

TEST_P(pulled_collectives, all_gather) {
  const auto [ranks, count] = GetParam();
  if (count % ranks != 0) GTEST_SKIP() << "no equal shares";
  const std::int64_t share = count / ranks;
  run(
      [&](const Collectives& group, execution::Queue& queue, std::vector<float>& data, void*) {
        group.all_gather(queue, 0, data.data(), static_cast<std::size_t>(share) * sizeof(float));
      },
      [&, count = count](int, const std::vector<float>& data) {
        for (std::int64_t i = 0; i < count; ++i)
          if (data[static_cast<std::size_t>(i)] != draw(static_cast<int>(i / share), i))
            return false;
        return true;
      });
}

// Short ones go whole to all ranks; the longest goes in two rows.
INSTANTIATE_TEST_SUITE_P(shapes, pulled_collectives,
                         ::testing::Values(Shape{2, 1}, Shape{2, 1000}, Shape{3, 999},
                                           Shape{2, 100'000}, Shape{3, 100'001}, Shape{4, 100'000},
                                           Shape{2, (std::int64_t{9} << 20) + 6}),
                         [](const auto& one) { return text(one.param); });

}  // namespace
}  // namespace stowage::parallel
