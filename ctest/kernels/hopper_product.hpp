#pragma once

#include <cstdint>

#include "execution/dtype.hpp"

namespace stowage::kernels::test {

/// Which operands the wgmma of the test reads, and how; or that products are those of warps, with b
/// along n.
enum class ProductForm { k_major, mn_major_b, a_in_registers, of_warps };

constexpr bool along_n(ProductForm form) {
  return form == ProductForm::mn_major_b || form == ProductForm::of_warps;
}

/// d (64 x 128, fp32) = a (64 x 64) b by one warpgroup on the device, operands loaded by bulk
/// tensor copies with the 128-byte swizzle. b is (128 x 64), rows along n, for k_major and
/// a_in_registers; (64 x 128), rows along k, for the others. Device pointers; synchronises. Returns
/// a CUDA error code.
int run_product(ProductForm form, const execution::Bf16* a, const execution::Bf16* b, float* d);

}  // namespace stowage::kernels::test
