// Stop signals are noted, a second one ends the process, and the previous handlers come back.
#include "parallel/job/signals.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>

namespace stowage::parallel {
namespace {

const int kBeforeAnyIsAskedFor = stop_signal();

TEST(signals, none_at_first) {
  EXPECT_EQ(kBeforeAnyIsAskedFor, 0);
  const StopSignals signals;
  EXPECT_EQ(stop_signal(), 0);
}

TEST(signals, all_four_are_noted) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    const StopSignals signals;
    std::raise(signal);
    EXPECT_EQ(stop_signal(), signal);
  }
}

TEST(signals, earlier_ones_are_forgotten) {
  {
    const StopSignals signals;
    std::raise(SIGTERM);
  }
  const StopSignals signals;
  EXPECT_EQ(stop_signal(), 0);
}

int other_calls = 0;

TEST(signals, previous_handler_comes_back) {
  std::signal(SIGUSR1, [](int) { ++other_calls; });
  { const StopSignals signals; }
  std::raise(SIGUSR1);
  EXPECT_EQ(other_calls, 1);
  std::signal(SIGUSR1, SIG_DFL);
}

TEST(signals, are_taken_again_from_a_library) {
  const StopSignals signals;
  std::signal(SIGTERM, [](int) { ++other_calls; });
  signals.renew();
  std::raise(SIGTERM);
  EXPECT_EQ(stop_signal(), SIGTERM);
}

TEST(signals, what_was_ignored_stays_ignored) {
  std::signal(SIGHUP, SIG_IGN);  // nohup
  {
    const StopSignals signals;
    std::raise(SIGHUP);
    EXPECT_EQ(stop_signal(), 0);
  }
  std::signal(SIGHUP, SIG_DFL);
}

/// How a process ends that gets two signals, so many seconds apart.
int status_after(int first, int second, double seconds) {
  const pid_t child = fork();
  if (child == 0) {
    const StopSignals signals;
    std::raise(first);
    struct timespec pause = {.tv_sec = static_cast<time_t>(seconds), .tv_nsec = 0};
    ::nanosleep(&pause, nullptr);
    std::raise(second);
    _exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(signals, a_second_one_ends_the_process_at_once) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const int status = status_after(SIGINT, signal, 2 * StopSignals::kSameEventSeconds);
    ASSERT_TRUE(WIFSIGNALED(status)) << signal;
    EXPECT_EQ(WTERMSIG(status), signal);
  }
}

TEST(signals, one_event_that_comes_twice_and_requests_end_nothing) {
  for (const auto& [first, second, seconds] :
       {std::tuple{SIGINT, SIGTERM, 0.0}, {SIGUSR1, SIGTERM, 2.0}, {SIGTERM, SIGUSR1, 2.0}}) {
    const int status = status_after(first, second, seconds);
    ASSERT_TRUE(WIFEXITED(status)) << first << " " << second;
    EXPECT_EQ(WEXITSTATUS(status), 7);
  }
}

}  // namespace
}  // namespace stowage::parallel
