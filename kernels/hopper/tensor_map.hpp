#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>

#include "kernels/hopper/swizzle.hpp"

namespace stowage::kernels::hopper {

/// Element types that a tensor map may have here.
enum class TensorMapType : std::uint8_t { bf16, fp32, int32 };

/// Describes a strided tensor in device memory to the bulk tensor copy engine.
///
/// `extents` (elements) are innermost first, 1 to 5 of them; `strides_bytes` are those of
/// dimensions 1, 2, … (the innermost is contiguous), each a multiple of 16; `base` is 16-byte
/// aligned. `box` is what one copy moves (elements, at most 256 each); its innermost extent has at
/// most `row_bytes(swizzle)` bytes. Out-of-bounds elements read as zero. The map goes to a kernel
/// as a `const __grid_constant__ CUtensorMap` parameter. Host only: no CUDA context work, no
/// allocation. `fetch_bytes`, 128 or 256, is what L2 fetches at least: 256 unless rows of a box are
/// shorter and their neighbours are not wanted soon. The encoder is found through the runtime
/// (cudaGetDriverEntryPointByVersion), so that nothing links against the driver's library. Throws
/// Error when the driver refuses.
CUtensorMap make_tensor_map(TensorMapType type, const void* base,
                            std::span<const std::uint64_t> extents,
                            std::span<const std::uint64_t> strides_bytes,
                            std::span<const std::uint32_t> box, Swizzle swizzle,
                            int fetch_bytes = 256);

}  // namespace stowage::kernels::hopper
