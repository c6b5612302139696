#pragma once

#include <atomic>
#include <cstdint>

namespace stowage::execution::cuda {

/// How often the host has waited for the queues and events of a backend, which share it.
using Waits = std::atomic<std::uint64_t>;

}  // namespace stowage::execution::cuda
