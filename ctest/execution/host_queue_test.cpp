// Queues of the host backend: order, threads, errors and random delays.
#include <algorithm>
#include <atomic>
#include <ctime>
#include <numeric>
#include <set>

#include "ctest/execution/host_support.hpp"

namespace stowage::execution {
namespace {

class host_queue : public HostBackendTest {};
INSTANTIATE_TEST_SUITE_P(, host_queue, testing::Values(0, 1, 2));

TEST_P(host_queue, runs_in_order) {
  for (Queue* queue : {compute.get(), d2h.get()}) {
    std::vector<int> order;
    for (int i = 0; i < 100; ++i) queue->enqueue([&order, i] { order.push_back(i); });
    queue->synchronize();
    std::vector<int> expected(100);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(order, expected);
  }
}

TEST_P(host_queue, calls_do_not_block_the_host) {
  Gate gate;
  compute->enqueue([&] { gate.pass(); });
  const auto event = backend->make_event();
  compute->record(*event);
  second->wait(*event);
  second->enqueue([] {});
  gate.open();  // reached: nothing above waited for it
  second->synchronize();
}

TEST_P(host_queue, stream_is_null) { EXPECT_EQ(compute->stream(), nullptr); }

TEST_P(host_queue, compute_queues_share_one_thread_and_others_have_their_own) {
  std::vector<std::thread::id> ids(4);
  std::vector<Queue*> queues = {compute.get(), second.get(), d2h.get(), h2d.get()};
  for (std::size_t i = 0; i < 4; ++i)
    queues[i]->enqueue([&ids, i] { ids[i] = std::this_thread::get_id(); });
  for (Queue* queue : queues) queue->synchronize();
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), 3U);
  EXPECT_FALSE(std::count(ids.begin(), ids.end(), std::this_thread::get_id()));
}

TEST_P(host_queue, copy_lane_overlaps_compute) {
  Gate gate;
  compute->enqueue([&] { gate.pass(); });
  d2h->enqueue([&] { gate.open(); });  // else both hang
  compute->synchronize();
}

TEST_P(host_queue, blocked_compute_queue_does_not_block_another) {
  Gate gate;
  const auto event = backend->make_event();
  d2h->enqueue([&] { gate.pass(); });
  d2h->record(*event);
  compute->wait(*event);
  std::atomic<bool> ran = false;
  compute->enqueue([&] { ran = true; });
  second->enqueue([] {});
  second->synchronize();  // hangs if the waiting queue held the thread
  EXPECT_FALSE(ran);
  gate.open();
  compute->synchronize();
  EXPECT_TRUE(ran);
}

TEST_P(host_queue, copies_bytes) {
  const auto device = backend->allocate(MemoryKind::device, 1 << 16);
  const auto host = backend->allocate(MemoryKind::host, 1 << 16);
  for (std::size_t i = 0; i < device->bytes(); ++i) device->data()[i] = static_cast<std::byte>(i);
  d2h->copy(host->data(), device->data(), device->bytes());
  d2h->synchronize();
  EXPECT_TRUE(std::equal(host->data(), host->data() + host->bytes(), device->data()));
}

TEST_P(host_queue, copies_as_many_rows_as_are_counted_when_it_runs) {
  constexpr std::size_t kRow = 24, kMost = 100 * kRow;
  const auto device = backend->allocate(MemoryKind::device, kMost + sizeof(std::int32_t));
  const auto host = backend->allocate(MemoryKind::host, 2 * kMost);
  std::fill_n(device->data(), kMost, std::byte{7});
  auto* count = reinterpret_cast<std::int32_t*>(device->data() + kMost);
  const auto event = backend->make_event();
  std::uint64_t moved = 0, expected = 0;
  for (const int rows : {0, 3, 100, 101}) {
    std::fill_n(host->data(), 2 * kMost, std::byte{0});
    compute->enqueue([=] { *count = rows; });
    compute->record(*event);
    d2h->wait(*event);
    d2h->copy_rows(host->data(), device->data(), {count, kRow, kMost, true, &moved});
    d2h->synchronize();
    const std::size_t bytes = std::min(kMost, static_cast<std::size_t>(rows) * kRow);
    EXPECT_EQ(std::count(host->data(), host->data() + 2 * kMost, std::byte{7}), bytes);
    EXPECT_EQ(moved, expected += bytes);
  }
}

TEST_P(host_queue, error_is_rethrown_and_stops_the_backend) {
  std::atomic<int> later = 0;
  compute->enqueue([] { throw Error(Exit::usage, "token id 300 is above the vocabulary"); });
  compute->enqueue([&] { ++later; });
  EXPECT_ERROR(compute->synchronize(), "token id 300");
  d2h->enqueue([&] { ++later; });
  EXPECT_ERROR(d2h->synchronize(), "token id 300");
  EXPECT_ERROR(compute->synchronize(), "token id 300");  // it stays, as in CUDA
  EXPECT_EQ(later, 0);
}

TEST_P(host_queue, error_keeps_its_exit_code_and_type) {
  compute->enqueue([] { throw Error(Exit::environment, "no memory"); });
  try {
    compute->synchronize();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::environment);
  }
}

TEST_P(host_queue, first_error_wins) {
  compute->enqueue([] { throw Error(Exit::runtime, "first"); });
  compute->enqueue([] { throw Error(Exit::runtime, "second"); });
  EXPECT_ERROR(compute->synchronize(), "first");
}

TEST_P(host_queue, error_releases_those_who_wait) {
  const auto event = backend->make_event();
  Gate gate;
  compute->enqueue([&] {
    gate.pass();
    throw Error(Exit::runtime, "lost");
  });
  compute->record(*event);
  d2h->wait(*event);
  d2h->enqueue([] {});
  gate.open();
  EXPECT_ERROR(event->synchronize(), "lost");
  EXPECT_ERROR(d2h->synchronize(), "lost");
}

TEST_P(host_queue, error_of_one_backend_leaves_others_alone) {
  const auto other = make_host_backend({GetParam(), 200e-6});
  const auto queue = other->make_queue(Lane::compute, "compute");
  compute->enqueue([] { throw Error(Exit::runtime, "lost"); });
  EXPECT_ERROR(compute->synchronize(), "lost");
  bool ran = false;
  queue->enqueue([&] { ran = true; });
  queue->synchronize();
  EXPECT_TRUE(ran);
}

TEST_P(host_queue, work_may_not_wait_for_work) {
  compute->enqueue([&] { second->synchronize(); });
  EXPECT_ERROR(compute->synchronize(), "waits for other work");
}

TEST_P(host_queue, closures_may_own_what_the_backend_made) {
  std::shared_ptr<Event> event = backend->make_event();
  compute->enqueue([event] {});
  event.reset();  // the closure is now the last owner and is destroyed by the worker
  compute->synchronize();
}

TEST_P(host_queue, destruction_waits_for_the_work) {
  std::atomic<bool> ran = false;
  d2h->enqueue([&] {
    let_mistakes_happen();
    ran = true;
  });
  d2h.reset();
  EXPECT_TRUE(ran);
}

TEST_P(host_queue, exception_under_way_drops_work_not_begun) {
  std::atomic<int> ran = 0;
  Gate begun, gate;
  try {
    const auto queue = backend->make_queue(Lane::comm, "comm");
    queue->enqueue([&] {
      ++ran;
      begun.open();
      gate.pass();
    });
    queue->enqueue([&] { ++ran; });
    begun.pass();
    std::thread([&] {
      let_mistakes_happen();
      gate.open();
    }).detach();
    throw std::runtime_error("the host failed");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(ran, 1);
}

/// A delayed task is waited for without the lock that others need, and without a processor.
TEST(host_delays, a_task_that_waits_for_its_time_takes_no_processor) {
  const auto backend = make_host_backend({.delay_seed = 1, .max_delay_s = 0.02});
  const auto queue = backend->make_queue(Lane::compute, "compute");
  const double begin_s = steady_seconds();
  const std::clock_t begin = std::clock();
  for (int i = 0; i < 4; ++i) queue->enqueue([] {});
  queue->synchronize();
  const double busy_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LT(busy_s, 0.2 * (steady_seconds() - begin_s));
}

TEST_P(host_queue, refuses_queues_and_events_of_another_backend) {
  struct Foreign final : Event {
    void synchronize() override {}
    bool done() override { return true; }
  } foreign;
  EXPECT_ERROR(compute->record(foreign), "another backend");
  EXPECT_ERROR(compute->wait(foreign), "another backend");
}

TEST_P(host_queue, many_host_threads_may_enqueue) {
  std::atomic<int> sum = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const auto queue = backend->make_queue(Lane::compute, "mine");
      for (int i = 0; i < 50; ++i) queue->enqueue([&] { ++sum; });
      queue->synchronize();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 200);
}

/// Whether the copy saw the value that compute writes, without the edge that would make it so.
bool copy_sees_value(std::uint64_t seed) {
  const auto backend = make_host_backend({seed, 2e-3});
  const auto compute = backend->make_queue(Lane::compute, "compute");
  const auto d2h = backend->make_queue(Lane::d2h, "d2h");
  std::atomic<int> value = 0;
  int seen = 0;
  compute->enqueue([&] { value = 1; });
  d2h->enqueue([&] { seen = value; });
  compute->synchronize();
  d2h->synchronize();
  return seen == 1;
}

TEST(host_delay, shows_a_missing_edge) {
  int right = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) right += copy_sees_value(seed) ? 1 : 0;
  EXPECT_GT(right, 0);
  EXPECT_LT(right, 20);
}

TEST(host_delay, lets_compute_queues_overtake_each_other) {
  bool overtaken = false;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto backend = make_host_backend({seed, 2e-3});
    const auto first = backend->make_queue(Lane::compute, "first");
    const auto second = backend->make_queue(Lane::compute, "second");
    std::vector<int> order;  // both run in the compute thread
    first->enqueue([&] { order.push_back(1); });
    second->enqueue([&] { order.push_back(2); });
    first->synchronize();
    second->synchronize();
    overtaken = overtaken || order.front() == 2;
  }
  EXPECT_TRUE(overtaken);
}

}  // namespace
}  // namespace stowage::execution
