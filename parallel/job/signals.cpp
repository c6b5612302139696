#include "parallel/job/signals.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <string_view>

namespace stowage::parallel {
namespace {

std::atomic<int> last_signal = 0;
std::atomic<std::int64_t> first_end_ns = 0;  ///< when the first signal but SIGUSR1 came
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not lock");
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a signal handler may not lock");

constexpr auto kSameEventNs = static_cast<std::int64_t>(1e9 * StopSignals::kSameEventSeconds);

/// Calls only what is safe in a signal handler.
void note(int signal) {
  last_signal = signal;
  if (signal == SIGUSR1) return;
  struct timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t now_ns = std::int64_t{1000000000} * now.tv_sec + now.tv_nsec;
  std::int64_t none = 0;
  if (first_end_ns.compare_exchange_strong(none, now_ns)) return;
  if (now_ns - first_end_ns < kSameEventNs) return;
  constexpr std::string_view kText = "stowage: a second signal: the run ends at once\n";
  (void)!::write(STDERR_FILENO, kText.data(), kText.size());
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // pending until this handler returns
}

void take(int signal) {
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;  // reads and writes under way go on
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  last_signal = 0;
  first_end_ns = 0;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    struct sigaction before = {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    previous_.push_back({signal, before});
    take(signal);
  }
}

StopSignals::~StopSignals() {
  for (const Previous& previous : previous_)
    ::sigaction(previous.signal, &previous.action, nullptr);
}

void StopSignals::renew() const {
  for (const Previous& previous : previous_) take(previous.signal);
}

int stop_signal() { return last_signal; }

}  // namespace stowage::parallel
