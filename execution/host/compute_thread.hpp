#pragma once

#include <memory>

#include "execution/host/worker.hpp"

namespace stowage::execution::host {

/// The compute thread of the process: serves the compute queues of all host backends. Started at
/// the first call; it ends with the process.
/// @throws Error (exit 3) if its threads cannot be started
///
/// There is one because Kokkos can be initialised once in a process, and because its OpenMP space
/// works only in the thread that initialised it (elsewhere a loop silently runs on one thread).
std::shared_ptr<Worker> compute_thread();

/// What the compute thread does first and last (loops.cpp): Kokkos' lifetime.
void start_kokkos();
void stop_kokkos();

}  // namespace stowage::execution::host
