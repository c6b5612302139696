#pragma once

#include <cstddef>

namespace stowage::execution::cuda {

/// Lets the pages of [address, address + bytes), not made yet, come from the memory next to the
/// current GPU, as far as there is any. Where the system does not say which memory that is, or does
/// not let a program choose, or its launcher has chosen, nothing changes.
void prefer_near_gpu(void* address, std::size_t bytes);

/// The NUMA node next to the current GPU; -1: not known.
int numa_node_of_gpu();

}  // namespace stowage::execution::cuda
