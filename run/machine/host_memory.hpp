#pragma once

#include <cstddef>

namespace stowage::run {

/// Memory of the whole host; 2^64 - 1 if the system does not say.
std::size_t host_memory_bytes();

/// Throws Error(Exit::environment) if a rank needs more bytes of host memory than the whole host
/// has: the kernel would end the job with no sentence, when the bytes are touched.
/// @param copy of these, for the copy that checkpoint.copy puts there
void require_host_memory(std::size_t bytes, std::size_t copy);

}  // namespace stowage::run
