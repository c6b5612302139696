// Threads that share out pieces.
#include "results/file_threads.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace stowage::results {
namespace {

TEST(file_threads, every_turn_is_given_once) {
  for (const int threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> given(1000);
    Turns turns(given.size());
    on_threads(threads, turns, [&](int) {
      while (const std::optional<std::size_t> turn = turns.next()) ++given[*turn];
    });
    for (const std::atomic<int>& times : given) EXPECT_EQ(times, 1);
    EXPECT_FALSE(turns.next());
  }
}

// Without the stop the others would go on for an hour.
TEST(file_threads, an_error_stops_all_and_is_the_callers) {
  for (const int fails : {0, 2}) {
    Turns turns(3'600'000);
    const auto body = [&](int thread) {
      while (turns.next()) {
        if (thread == fails) throw std::runtime_error("no space left");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    };
    EXPECT_THROW(on_threads(3, turns, body), std::runtime_error);
  }
}

TEST(file_threads, they_are_bounded) {
  EXPECT_EQ(file_threads(0), 1);
  EXPECT_EQ(file_threads(3), 3);
  EXPECT_EQ(file_threads(128), kMostFileThreads);
}

}  // namespace
}  // namespace stowage::results
