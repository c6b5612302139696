#include "execution/host_threads.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "execution/error.hpp"

namespace stowage::execution {

int offered_host_threads() { return std::max(1, omp_get_max_threads()); }

int host_threads() { return std::min(offered_host_threads(), kMostHostThreads); }

void require_host_threads(int threads) {
  std::vector<std::thread> others;
  others.reserve(static_cast<std::size_t>(threads));
  std::atomic<bool> all_are_there = false;
  std::string problem;
  try {
    while (others.size() + 1 < static_cast<std::size_t>(threads))
      others.emplace_back([&] { all_are_there.wait(false); });
  } catch (const std::system_error& error) {
    problem = error.what();
  }
  const std::size_t started = others.size() + 1;
  all_are_there = true;
  all_are_there.notify_all();
  for (std::thread& other : others) other.join();
  if (problem.empty()) return;
  throw_environment(
      "only {} of {} compute threads could be started ({}): allow more processes (ulimit -u) and "
      "memory (ulimit -v), or set OMP_NUM_THREADS to fewer",
      started, threads, problem);
}

}  // namespace stowage::execution
