#pragma once

#include <cstdint>

namespace stowage::kernels {

/// FLOPs that a Hopper GPU could do beside a product (m, k) by (k, n), in multiprocessors that have
/// no tile of it, beyond what it could beside large ones: for costs.
double product_idle_flops(std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace stowage::kernels
