// Arenas, queues and events of the cuda backend.
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "ctest/execution/cuda_support.hpp"
#include "execution/cuda/numa.hpp"

namespace stowage::execution {
namespace {

using cuda_backend = CudaBackendTest;

TEST_F(cuda_backend, arenas_are_zeroed_and_aligned) {
  for (const auto* arena : {device.get(), host.get()})
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena->data()) % 4096, 0U);
  std::memset(host->data(), 0xee, kBytes);
  compute->copy(host->data(), device->data(), kBytes);
  compute->synchronize();
  EXPECT_TRUE(std::all_of(host->data(), host->data() + 2 * kBytes,
                          [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(cuda_backend, too_little_memory_names_both_sizes) {
  const std::size_t huge = std::size_t{1} << 50;
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::host}) {
    try {
      (void)backend->allocate(kind, huge);
      FAIL() << "a petabyte was allocated";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::environment);
      const std::string message = error.what();
      EXPECT_NE(message.find(std::to_string(huge)), std::string::npos) << message;
      EXPECT_NE(message.find("are available"), std::string::npos) << message;
    }
  }
}

// Of rows of 12 bytes some end within a pack of 16.
TEST_F(cuda_backend, copies_as_many_rows_as_are_counted_when_it_runs) {
  constexpr std::size_t kRow = 12, kRows = kBytes / kRow, kMost = kRows * kRow;
  const auto count = backend->allocate(MemoryKind::device, sizeof(std::int32_t));
  const auto words = backend->allocate(MemoryKind::host, 4096);
  auto* rows = reinterpret_cast<std::int32_t*>(words->data());
  auto* moved = reinterpret_cast<std::uint64_t*>(words->data() + 64);
  CountedRows counted{reinterpret_cast<std::int32_t*>(count->data()), kRow, kMost, false, moved};
  backend->begin_capture(*d2h);
  d2h->copy(count->data(), rows, sizeof(std::int32_t));
  d2h->copy_rows(device->data(), host->data(), counted);
  counted.to_host = true;
  d2h->copy_rows(host->data() + kBytes, device->data(), counted);
  const auto graph = backend->end_capture(*d2h);
  std::uint64_t expected = 0;
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{1}, std::size_t{5}, kRows / 2 + 1, kRows, kRows + 3}) {
    randomise();
    *rows = static_cast<std::int32_t>(n);
    graph->launch(*d2h);
    d2h->synchronize();
    const std::size_t bytes = std::min(n * kRow, kMost);
    EXPECT_EQ(std::memcmp(host->data(), host->data() + kBytes, bytes), 0);
    EXPECT_TRUE(std::all_of(host->data() + kBytes + bytes, host->data() + 2 * kBytes,
                            [](std::byte b) { return b == std::byte{0xee}; }));
    EXPECT_EQ(*moved, expected += 2 * bytes);
  }
}

TEST_F(cuda_backend, counts_allocations) {
  const std::uint64_t before = backend->allocations();
  const auto more = backend->allocate(MemoryKind::device, 1);
  EXPECT_EQ(backend->allocations(), before + 1);
  up(*compute);
  compute->record(*event);
  compute->synchronize();
  EXPECT_EQ(backend->allocations(), before + 1);
}

TEST_F(cuda_backend, counts_waits) {
  const auto timed = backend->make_timed_event();
  const std::uint64_t before = backend->waits();
  up(*compute);
  compute->record(*event);
  compute->record(*timed);
  compute->wait(*event);
  (void)event->done();
  EXPECT_EQ(backend->waits(), before);
  compute->synchronize();
  event->synchronize();
  timed->synchronize();
  EXPECT_EQ(backend->waits(), before + 3);
}

TEST_F(cuda_backend, missing_gpu_is_an_environment_error) {
  try {
    (void)make_cuda_backend({.device = 4096});
    FAIL() << "GPU 4096 exists";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::environment);
    EXPECT_NE(std::string(error.what()).find("GPU 4096 was asked for"), std::string::npos);
  }
}

TEST_F(cuda_backend, failed_call_names_call_and_code) {
  // Not an address of this process: refused when it is enqueued, no sticky error.
  EXPECT_ERROR(compute->copy(nullptr, device->data(), 16), "cudaMemcpyAsync");
  compute->synchronize();
}

TEST_F(cuda_backend, events_order_queues) {
  for (int round = 0; round < 20; ++round) {
    randomise();
    up(*h2d);
    h2d->record(*event);
    compute->wait(*event);
    across(*compute);
    compute->record(*event);
    d2h->wait(*event);
    down(*d2h);
    d2h->record(*other);
    other->synchronize();
    EXPECT_TRUE(other->done());
    ASSERT_TRUE(arrived()) << "round " << round;
  }
}

TEST_F(cuda_backend, timed_events_tell_when_they_happened) {
  const auto first = backend->make_timed_event();
  const auto second = backend->make_timed_event();
  const double before_s = steady_seconds();
  compute->record(*first);
  up(*compute);
  compute->record(*second);
  d2h->wait(*second);
  d2h->synchronize();
  const double after_s = steady_seconds();
  constexpr double kAnchor_s = 200e-6;  // how well the device's clock is tied to the host's
  EXPECT_LE(before_s, first->time_s() + kAnchor_s);
  EXPECT_LE(second->time_s(), after_s + kAnchor_s);
  const double time_s = second->time_s() - first->time_s();
  EXPECT_GT(time_s, static_cast<double>(kBytes) / 1e12);  // no link is that fast
  EXPECT_LT(time_s, after_s - before_s);
}

TEST_F(cuda_backend, event_never_recorded_is_done) {
  EXPECT_TRUE(event->done());
  event->synchronize();
  compute->wait(*event);
  compute->synchronize();
}

TEST_F(cuda_backend, page_locked_memory_lies_next_to_the_gpu) {
  const int node = cuda::numa_node_of_gpu();
  if (node < 0) GTEST_SKIP() << "the system does not say which node is next to the GPU";
  const auto arena = backend->allocate(MemoryKind::host, std::size_t{64} << 20);
  for (std::size_t at = 0; at < arena->bytes(); at += std::size_t{8} << 20) {
    int where = -1;
    if (syscall(SYS_get_mempolicy, &where, nullptr, 0UL, arena->data() + at,
                MPOL_F_NODE | MPOL_F_ADDR) != 0)
      GTEST_SKIP() << "the system does not say where a page lies";
    EXPECT_EQ(where, node) << at;
  }
}

TEST_F(cuda_backend, refuses_what_belongs_to_the_host_backend) {
  EXPECT_ERROR(compute->enqueue([] {}), "host closure");
  const auto foreign = make_host_backend();
  const auto foreign_event = foreign->make_event();
  const auto foreign_queue = foreign->make_queue(Lane::h2d, "h2d");
  EXPECT_ERROR(compute->record(*foreign_event), "another backend");
  EXPECT_ERROR(backend->begin_capture(*foreign_queue), "another backend");
}

}  // namespace
}  // namespace stowage::execution
