#pragma once

#include <cstddef>

#include "execution/queue.hpp"

namespace stowage::parallel::detail {

/// Queue::copy between places of this rank's device memory, on a queue of communication. The
/// driver's own copy within a device is a kernel that waits for SMs which products hold.
void overlapping_copy(execution::Queue& queue, void* to, const void* from, std::size_t bytes);

/// On a cudaStream_t; returns the cudaError_t.
int launch_overlapping_copy(void* stream, void* to, const void* from, std::size_t bytes);

}  // namespace stowage::parallel::detail
