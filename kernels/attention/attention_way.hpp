#pragma once

namespace stowage::kernels {

/// How the backward makes dq on a GPU's tensor cores: from score gradients, kept in memory or
/// computed again where there is no room; or inside the kernel that owns keys, which adds its
/// shares in fp32 in a fixed order. The last bits of dq depend on it. Other paths have one way.
enum class QueryGradient { by_shape, stored, inside };

}  // namespace stowage::kernels
