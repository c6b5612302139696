#include "parallel/signals.hpp"

#include <atomic>

namespace stowage::parallel {
namespace {

std::atomic<int> last_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not lock");

void note(int signal) { last_signal = signal; }

}  // namespace

StopSignals::StopSignals() {
  last_signal = 0;
  for (const int signal : {SIGTERM, SIGUSR1}) {
    struct sigaction action = {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;  // reads and writes under way go on
    Previous& previous = previous_.emplace_back(Previous{signal, {}});
    ::sigaction(signal, &action, &previous.action);
  }
}

StopSignals::~StopSignals() {
  for (const Previous& previous : previous_)
    ::sigaction(previous.signal, &previous.action, nullptr);
}

int StopSignals::received() const { return last_signal; }

}  // namespace stowage::parallel
