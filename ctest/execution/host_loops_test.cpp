// host_for: what runs where, and that its result does not depend on the threads.
#include "execution/host_loops.hpp"

#include <atomic>
#include <numeric>
#include <set>

#include "ctest/execution/host_support.hpp"

namespace stowage::execution {
namespace {

class host_loops : public testing::Test {
 protected:
  /// Runs work in the compute thread.
  void on_compute_thread(std::function<void()> work) {
    queue->enqueue(std::move(work));
    queue->synchronize();
  }

  std::unique_ptr<Backend> backend = make_host_backend();
  std::unique_ptr<Queue> queue = backend->make_queue(Lane::compute, "compute");
};

TEST_F(host_loops, covers_the_range_once_in_blocks_of_grain) {
  for (const std::int64_t count : {0, 1, 7, 64, 1000}) {
    for (const std::int64_t grain : {1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      std::atomic<bool> aligned = true;
      on_compute_thread([&] {
        host_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
          if (begin % grain != 0 || end != std::min(begin + grain, count)) aligned = false;
          for (std::int64_t i = begin; i < end; ++i) ++visits[i];
        });
      });
      EXPECT_TRUE(aligned) << count << " " << grain;
      for (const auto& v : visits) EXPECT_EQ(v, 1) << count << " " << grain;
    }
  }
}

TEST_F(host_loops, runs_on_several_threads_in_the_compute_thread) {
  std::set<std::thread::id> ids;
  std::mutex mutex;
  on_compute_thread([&] {
    host_for_each(64, [&](std::int64_t) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
  });
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (threads == nullptr) GTEST_SKIP() << "OMP_NUM_THREADS is not set";
  EXPECT_EQ(ids.size(), static_cast<std::size_t>(std::atoi(threads)));
}

TEST_F(host_loops, is_serial_in_other_threads) {
  const auto copies = backend->make_queue(Lane::d2h, "d2h");
  std::set<std::thread::id> ids;
  copies->enqueue(
      [&] { host_for_each(64, [&](auto) { ids.insert(std::this_thread::get_id()); }); });
  copies->synchronize();
  EXPECT_EQ(ids.size(), 1U);
  ids.clear();
  host_for_each(64, [&](auto) { ids.insert(std::this_thread::get_id()); });
  EXPECT_EQ(ids, std::set{std::this_thread::get_id()});
}

TEST_F(host_loops, nested_loops_run_serially) {
  std::atomic<int> visits = 0, strays = 0;
  on_compute_thread([&] {
    host_for_each(8, [&](std::int64_t) {
      const auto outer = std::this_thread::get_id();
      host_for_each(8, [&](std::int64_t) {
        ++visits;
        if (std::this_thread::get_id() != outer) ++strays;
      });
    });
  });
  EXPECT_EQ(visits, 64);
  EXPECT_EQ(strays, 0);
}

TEST_F(host_loops, partial_sums_per_block_are_deterministic) {
  constexpr std::int64_t kCount = 100'000, kGrain = 1000;
  const auto sum = [] {
    std::vector<float> partial(kCount / kGrain);
    host_for(kCount, kGrain, [&](std::int64_t begin, std::int64_t end) {
      float s = 0;
      for (std::int64_t i = begin; i < end; ++i) s += 1.0F / static_cast<float>(i + 1);
      partial[begin / kGrain] = s;
    });
    return std::accumulate(partial.begin(), partial.end(), 0.0F);
  };
  const float serial = sum();
  for (int repeat = 0; repeat < 5; ++repeat) {
    float parallel = 0;
    on_compute_thread([&] { parallel = sum(); });
    EXPECT_EQ(parallel, serial);
  }
}

TEST_F(host_loops, exception_leaves_the_loop_and_later_loops_work) {
  queue->enqueue([] {
    try {
      host_for_each(64, [](std::int64_t i) {
        if (i == 5) throw Error(Exit::runtime, "row 5");
      });
    } catch (const Error&) {
      std::atomic<int> visits = 0;
      host_for_each(64, [&](std::int64_t) { ++visits; });
      if (visits == 64) throw;
    }
  });
  EXPECT_ERROR(queue->synchronize(), "row 5");
}

}  // namespace
}  // namespace stowage::execution
