#pragma once

#include <cstdint>

#include "execution/dtype.hpp"
#include "execution/op.hpp"

namespace stowage::kernels {

/// Bytes of `elements` elements, as a term of a cost.
constexpr double bytes(std::int64_t elements, execution::Dtype dtype) {
  return static_cast<double>(elements) * static_cast<double>(execution::size_bytes(dtype));
}

/// Flops of a product (m, k) by (k, n).
constexpr double product_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

/// How often a stored gradient passes through memory: it is read too when it is added to.
constexpr double passes(bool accumulate) { return accumulate ? 2 : 1; }

}  // namespace stowage::kernels
