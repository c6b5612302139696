// More threads than Kokkos can have, and limits below those that are asked for. ctest starts these
// cases with OMP_NUM_THREADS=768.
#include "execution/host_threads.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "ctest/execution/host_support.hpp"
#include "ctest/support/in_child.hpp"
#include "execution/host_loops.hpp"

namespace stowage::execution {
namespace {

constexpr int kAsked = 768;

/// Does the environment ask for kAsked threads? Cases that ctest does not start may have others.
const bool kIsAsked = offered_host_threads() == kAsked;

TEST(host_threads, are_at_most_what_kokkos_can_have) {
  for (const int offered : {1, 7, 512, 513, kAsked, 5000}) {
    omp_set_num_threads(offered);
    EXPECT_EQ(offered_host_threads(), offered);
    EXPECT_EQ(host_threads(), std::min(offered, kMostHostThreads));
  }
}

TEST(host_threads, that_cannot_be_started_are_the_machines_fault) {
  if (!ctest::kLimitsTell) GTEST_SKIP();
  const int code = ctest::in_child([] {
    ctest::leave_room(100);
    try {
      require_host_threads(256);
    } catch (const Error& error) {
      const bool named =
          std::string(error.what()).find("of 256 compute threads") != std::string::npos;
      return named ? static_cast<int>(error.exit()) : 90;
    }
    return 91;
  });
  EXPECT_EQ(code, static_cast<int>(Exit::environment));
}

TEST(host_threads, a_backend_that_cannot_start_them_says_so) {
  if (!kIsAsked || !ctest::kLimitsTell) GTEST_SKIP() << "OMP_NUM_THREADS is not " << kAsked;
  const int code = ctest::in_child([] {
    ctest::leave_room(200);
    try {
      make_host_backend()->make_queue(Lane::compute, "compute");
    } catch (const Error& error) {
      return static_cast<int>(error.exit());
    }
    return 91;
  });
  EXPECT_EQ(code, static_cast<int>(Exit::environment));
}

TEST(host_threads, one_needs_nothing) { require_host_threads(1); }

// Last: limits are tried in children that have no threads of a case before.
TEST(host_threads, more_than_kokkos_can_have_compute) {
  if (!kIsAsked) GTEST_SKIP() << "OMP_NUM_THREADS is not " << kAsked;
  const auto backend = make_host_backend();
  const auto queue = backend->make_queue(Lane::compute, "compute");
  std::atomic<std::int64_t> sum = 0;
  queue->enqueue([&] { host_for_each(2000, [&](std::int64_t i) { sum += i; }); });
  queue->synchronize();
  EXPECT_EQ(sum, 1999 * 1000);
}

}  // namespace
}  // namespace stowage::execution
