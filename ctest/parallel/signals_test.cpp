// Stop signals are noted, and the previous handlers come back.
#include "parallel/signals.hpp"

#include <gtest/gtest.h>

namespace stowage::parallel {
namespace {

TEST(signals, none_at_first) { EXPECT_EQ(StopSignals().received(), 0); }

TEST(signals, both_are_noted) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const StopSignals signals;
    std::raise(signal);
    EXPECT_EQ(signals.received(), signal);
  }
}

TEST(signals, earlier_ones_are_forgotten) {
  {
    const StopSignals signals;
    std::raise(SIGTERM);
  }
  EXPECT_EQ(StopSignals().received(), 0);
}

int other_calls = 0;

TEST(signals, previous_handler_comes_back) {
  std::signal(SIGUSR1, [](int) { ++other_calls; });
  { const StopSignals signals; }
  std::raise(SIGUSR1);
  EXPECT_EQ(other_calls, 1);
  std::signal(SIGUSR1, SIG_DFL);
}

}  // namespace
}  // namespace stowage::parallel
