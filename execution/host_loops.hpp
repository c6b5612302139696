#pragma once

#include <cstdint>
#include <functional>

namespace stowage::execution {

/// Runs `body(begin, end)` over [0, count) in blocks of `grain`, on Kokkos' host space when called
/// from the compute thread of a host backend, serially elsewhere.
///
/// The blocks do not depend on the number of threads, so a reduction that keeps one partial per
/// block (index begin / grain) and adds them in order is deterministic.
void host_for(std::int64_t count, std::int64_t grain,
              const std::function<void(std::int64_t begin, std::int64_t end)>& body);

/// Runs `body(i)` for each i in [0, count): for loops whose iterations are long (rows, heads).
template <class Body>
void host_for_each(std::int64_t count, Body&& body) {
  host_for(count, 1, [&body](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace stowage::execution
