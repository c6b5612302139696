#pragma once

#include <cstdint>

namespace stowage::kernels::hopper {

/// The 32-bit address that PTX uses in the shared window, for a generic pointer into it.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace stowage::kernels::hopper
