#pragma once

#include <cstddef>

namespace stowage::drivers {

/// Throws Error(Exit::environment) if a rank needs more bytes of host memory than the whole host
/// has: the kernel would end the job with no sentence, when the bytes are touched.
void require_host_memory(std::size_t bytes);

}  // namespace stowage::drivers
