#include "parallel/job/waits.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace stowage::parallel {
namespace {

using Clock = std::chrono::steady_clock;

/// Of this process. Few at a time: one for each thread that communicates.
struct Waits {
  std::mutex mutex;
  std::vector<const Wait*> all;
  std::atomic<double> patience_s{600};
};

Waits& waits() {
  static Waits of_process;
  return of_process;
}

}  // namespace

Wait::Wait(const char* call) : call_(call), begun_(Clock::now()) {
  const std::lock_guard lock(waits().mutex);
  waits().all.push_back(this);
}

Wait::~Wait() {
  const std::lock_guard lock(waits().mutex);
  std::erase(waits().all, this);
}

LongestWait longest_wait() {
  const std::lock_guard lock(waits().mutex);
  const auto& all = waits().all;
  const auto first = std::ranges::min_element(all, {}, &Wait::begun);
  if (first == all.end()) return {};
  return {(*first)->call(), Clock::now() - (*first)->begun()};
}

std::chrono::duration<double> wait_patience() {
  return std::chrono::duration<double>(waits().patience_s.load());
}

void set_wait_patience(std::chrono::duration<double> patience) {
  waits().patience_s = patience.count();
}

}  // namespace stowage::parallel
