#pragma once

#include <cstdint>

#include "kernels/hopper/shared_address.cuh"

namespace stowage::kernels::hopper {

/// ldmatrix: four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of
/// matrix l / 8 (16 bytes, aligned); r[i] gets, of matrix i, row l / 4, columns 2 (l % 4) and + 1.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// The same with each matrix transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// stmatrix: the inverse of ldmatrix_x4.
__device__ __forceinline__ void stmatrix_x4(std::uint32_t address, std::uint32_t r0,
                                            std::uint32_t r1, std::uint32_t r2, std::uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

}  // namespace stowage::kernels::hopper
