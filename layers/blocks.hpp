#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace stowage::layers {

/// Calls `body(begin, end)` over [0, count) in equal parts, on as many threads as the process has
/// CPUs: for work of the set-up, which runs outside of any queue. Short ranges stay on this thread.
/// `body` may not throw.
template <class Body>
void for_blocks(std::int64_t count, Body&& body) {
  constexpr std::int64_t kLeast = 1 << 16;
  const std::int64_t cpus = std::max(1U, std::thread::hardware_concurrency());
  const std::int64_t parts = std::clamp<std::int64_t>(count / kLeast, 1, cpus);
  std::vector<std::jthread> threads;
  for (std::int64_t part = 1; part < parts; ++part)
    threads.emplace_back([&body, begin = count * part / parts, end = count * (part + 1) / parts] {
      body(begin, end);
    });
  body(0, count / parts);
}

}  // namespace stowage::layers
