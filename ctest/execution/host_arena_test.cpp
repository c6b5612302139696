// Arenas of the host backend.
#include <algorithm>
#include <cstdint>

#include "ctest/execution/host_support.hpp"

namespace stowage::execution {
namespace {

TEST(host_arena, is_zeroed_aligned_and_writable) {
  const auto backend = make_host_backend();
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{1} << 20}) {
    const auto arena = backend->allocate(MemoryKind::device, bytes);
    EXPECT_EQ(arena->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena->data()) % 4096, 0U);
    std::byte* end = arena->data() + bytes;
    EXPECT_TRUE(std::all_of(arena->data(), end, [](std::byte b) { return b == std::byte{0}; }));
    std::fill(arena->data(), end, std::byte{0xff});
  }
}

TEST(host_arena, of_no_bytes_is_allowed) {
  EXPECT_EQ(make_host_backend()->allocate(MemoryKind::host, 0)->bytes(), 0U);
}

TEST(host_arena, allocations_are_counted) {
  const auto backend = make_host_backend();
  EXPECT_EQ(backend->allocations(), 0U);
  const auto first = backend->allocate(MemoryKind::device, 100);
  const auto second = backend->allocate(MemoryKind::host, 100);
  EXPECT_EQ(backend->allocations(), 2U);
}

TEST(host_arena, too_much_is_an_environment_error_with_its_kind_and_both_numbers) {
  const auto backend = make_host_backend();
  constexpr std::size_t kBytes = std::size_t{1} << 50;
  for (const auto& [kind, name] :
       {std::pair(MemoryKind::device, "device"), {MemoryKind::host, "host"}}) {
    try {
      (void)backend->allocate(kind, kBytes);
      FAIL() << "a pebibyte was given";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::environment);
      EXPECT_TRUE(std::string(error.what()).starts_with(name)) << error.what();
      EXPECT_NE(std::string(error.what()).find(std::to_string(kBytes)), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("available"), std::string::npos);
    }
  }
  EXPECT_EQ(backend->allocations(), 0U);
}

TEST(host_backend, counts_waits) {
  const auto backend = make_host_backend();
  const auto queue = backend->make_queue(Lane::d2h, "d2h");
  const auto event = backend->make_event();
  const auto timed = backend->make_timed_event();
  queue->record(*event);
  queue->record(*timed);
  queue->wait(*event);
  (void)event->done();
  EXPECT_EQ(backend->waits(), 0U);
  queue->synchronize();
  event->synchronize();
  (void)timed->time_s();
  EXPECT_EQ(backend->waits(), 3U);
}

TEST(host_backend, has_a_name) { EXPECT_EQ(make_host_backend()->name(), "host"); }

}  // namespace
}  // namespace stowage::execution
