#include "ctest/kernels/hopper_product.hpp"

#include <cuda_runtime.h>

#include "kernels/hopper/cp_async_bulk.cuh"
#include "kernels/hopper/matrix_move.cuh"
#include "kernels/hopper/mbarrier.cuh"
#include "kernels/hopper/mma.cuh"
#include "kernels/hopper/tensor_map.hpp"
#include "kernels/hopper/warp.cuh"
#include "kernels/hopper/wgmma.cuh"

namespace stowage::kernels::test {
namespace {

using namespace hopper;

constexpr int kN = 128;
constexpr int kPanelBytes = 64 * 128;  // 64 rows of 64 bf16

template <ProductForm kForm>
__global__ void __launch_bounds__(128, 1)
    product_kernel(const __grid_constant__ CUtensorMap a_map,
                   const __grid_constant__ CUtensorMap b_map, float* d) {
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ Mbarrier full;
  unsigned char* a = shared;
  unsigned char* b = shared + kPanelBytes;
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect_tx(&full, 3 * kPanelBytes);
    bulk_load_2d(a, &a_map, &full, 0, 0);
    for (int i = 0; i < 2; ++i) {
      const bool mn_major = along_n(kForm);
      bulk_load_2d(b + i * kPanelBytes, &b_map, &full, mn_major ? 64 * i : 0,
                   mn_major ? 0 : 64 * i);
    }
  }
  __syncthreads();
  mbarrier_wait(&full, 0);

  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  std::uint32_t fragment[16];
  const int row = warp * 16 + lane % 16;
  for (int i = 0; i < 4; ++i) {
    std::uint32_t r[4];
    const auto chunk = static_cast<std::uint32_t>(2 * i + lane / 16) * 16;
    ldmatrix_x4(r, shared_address(a) +
                       swizzled<Swizzle::b128>(static_cast<std::uint32_t>(row) * 128 + chunk));
    for (int j = 0; j < 4; ++j) fragment[4 * i + j] = r[j];
  }
  float sums[kN / 2] = {};
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // 16 of the 64 along k each
    if constexpr (kForm == ProductForm::of_warps) {
      const std::uint32_t of_step[4] = {fragment[4 * i], fragment[4 * i + 1], fragment[4 * i + 2],
                                        fragment[4 * i + 3]};
#pragma unroll
      for (int n = 0; n < kN / 16; ++n) {
        std::uint32_t r[4];
        const int k = 16 * i + lane % 16, chunk = n % 4 * 2 + lane / 16;
        ldmatrix_x4_trans(
            r, shared_address(b + n / 4 * kPanelBytes) +
                   swizzled<Swizzle::b128>(static_cast<std::uint32_t>(k * 128 + chunk * 16)));
        float* at = sums + 8 * n;
        mma_16x8x16(at[0], at[1], at[2], at[3], of_step, r[0], r[1]);
        mma_16x8x16(at[4], at[5], at[6], at[7], of_step, r[2], r[3]);
      }
    } else if constexpr (kForm == ProductForm::k_major) {
      Wgmma<kN>::ss<0, 0>(sums, advance(k_major<Swizzle::b128>(a), 32 * i),
                          advance(k_major<Swizzle::b128>(b), 32 * i), i > 0);
    } else if constexpr (kForm == ProductForm::mn_major_b) {
      Wgmma<kN>::ss<0, 1>(sums, advance(k_major<Swizzle::b128>(a), 32 * i),
                          advance(mn_major<Swizzle::b128>(b, kPanelBytes), 16 * 128 * i), i > 0);
    } else {
      Wgmma<kN>::rs<0>(sums, fragment[4 * i], fragment[4 * i + 1], fragment[4 * i + 2],
                       fragment[4 * i + 3], advance(k_major<Swizzle::b128>(b), 32 * i), i > 0);
    }
  }
  wgmma_commit_group();
  wgmma_wait_group<0>();
  pin_registers(sums);
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) {
    const int out_row = warp * 16 + lane / 4 + i / 2 % 2 * 8;
    d[out_row * kN + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
  }
}

template <ProductForm kForm>
cudaError_t launch(const CUtensorMap& a, const CUtensorMap& b, float* d) {
  product_kernel<kForm><<<1, 128, 3 * kPanelBytes + 1024>>>(a, b, d);
  const cudaError_t status = cudaGetLastError();
  return status != cudaSuccess ? status : cudaDeviceSynchronize();
}

CUtensorMap map(const execution::Bf16* data, std::uint64_t columns, std::uint64_t rows) {
  const std::uint64_t extents[] = {columns, rows};
  const std::uint64_t strides[] = {columns * 2};
  const std::uint32_t box[] = {64, 64};
  return make_tensor_map(TensorMapType::bf16, data, extents, strides, box, Swizzle::b128);
}

}  // namespace

int run_product(ProductForm form, const execution::Bf16* a, const execution::Bf16* b, float* d) {
  const CUtensorMap a_map = map(a, 64, 64);
  const CUtensorMap b_map = along_n(form) ? map(b, kN, 64) : map(b, 64, kN);
  switch (form) {
    case ProductForm::k_major:
      return launch<ProductForm::k_major>(a_map, b_map, d);
    case ProductForm::mn_major_b:
      return launch<ProductForm::mn_major_b>(a_map, b_map, d);
    case ProductForm::of_warps:
      return launch<ProductForm::of_warps>(a_map, b_map, d);
    default:
      return launch<ProductForm::a_in_registers>(a_map, b_map, d);
  }
}

}  // namespace stowage::kernels::test
