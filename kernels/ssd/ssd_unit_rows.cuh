#pragma once

#include "kernels/ssd/ssd_gradient.cuh"

/// X, dY and dX of a unit of the backward kernel (ssd_gradient.cu): 64 columns, and where units are
/// heads of 80 the 16 beyond, in tiles of their own.
namespace stowage::kernels::ssd::gradient_frame {

inline constexpr int kStateSteps = 2;  ///< K steps of a product with an image at once

/// As load_rows, of the tile of a head's columns beyond 64: rows of 32 bytes.
__device__ __forceinline__ std::uint32_t rest_address(std::uint32_t tile, int row, int chunk) {
  return tile + static_cast<std::uint32_t>(row * 32 + ((chunk ^ (row >> 2 & 1)) << 4));
}
__device__ __forceinline__ void load_rest(std::uint32_t (&pairs)[4], const std::byte* tile,
                                          const Place& at) {
  ldmatrix_x4(pairs, rest_address(shared_address(tile), 16 * at.warp + at.lane % 16, at.lane / 16));
}

/// Sends a warp's 16 rows of a head of 80 columns, as send_rows does.
__device__ __forceinline__ void send_head(const GradientParameters& p, std::byte* staging,
                                          std::byte* rest_staging, const float (&d)[32],
                                          const float (&rest)[8], int head, int token,
                                          const Place& at) {
  if (at.lane == 0) bulk_wait_group_read<0>();
  __syncwarp();
  const std::uint32_t first = tile_address(shared_address(staging), at.lane % 16, at.lane / 16);
#pragma unroll
  for (int k = 0; k < 4; ++k) store_columns(first, d, k);
  store_columns(rest_address(shared_address(rest_staging), at.lane % 16, at.lane / 16), rest, 0);
  fence_proxy_async();
  __syncwarp();
  if (at.lane != 0) return;
  bulk_store_3d(&p.dx, staging, 0, token + 16 * at.warp, head);
  bulk_store_3d(&p.dx_rest, rest_staging, kPart, token + 16 * at.warp, head);
  bulk_commit_group();
}

/// X or dY of a unit: 64 columns, and those beyond.
template <class L>
struct UnitRows {
  static constexpr int kSteps = (kPart + L::kRest) / kKStep;
  const std::byte *tile, *rest;
  __device__ __forceinline__ void load(std::uint32_t (&pairs)[4], int k, const Place& at) const {
    if (k < kPart / kKStep) {
      load_rows(pairs, shared_address(tile), k, at);
    } else {
      load_rest(pairs, rest, at);
    }
  }
};

/// The scales of rows row and row + 8 of a tile of bf16.
struct RowScales {
  float factor[2];

  template <class L>
  __device__ __forceinline__ RowScales(const UnitRows<L>& rows, const Place& at) {
    std::uint32_t largest[2] = {0, 0};  // by pairs
#pragma unroll
    for (int k = 0; k < UnitRows<L>::kSteps; ++k) {
      std::uint32_t pairs[4];
      rows.load(pairs, k, at);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        largest[i % 2] = __vmaxu2(largest[i % 2], pairs[i] & 0x7FFF7FFFU);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      std::uint32_t bits = max(largest[h] << 16, largest[h] & 0xFFFF0000U);
      bits = max(bits, __shfl_xor_sync(0xFFFFFFFFU, bits, 1));
      bits = max(bits, __shfl_xor_sync(0xFFFFFFFFU, bits, 2));
      factor[h] = HalfScale(bits).factor;
    }
  }
  __device__ __forceinline__ float inverse(int h) const { return power_inverse(factor[h]); }
};

/// The scale of an image whose strips lie in one unit of the state pass or in two: the larger one,
/// which operands of the other's strips take into account.
template <class L>
__device__ __forceinline__ float image_scale(const float* scales) {
  if constexpr (L::kUnits == 1) return scales[0];
  return fmaxf(scales[0], scales[kScaleFloats]);
}

/// d = A B: A a tile of bf16, taken as fp16 with scaled rows; B, an image, has K along its rows.
/// In steps, as the sums beside d leave few registers.
template <int kState, class L>
__device__ __forceinline__ void multiply_state(float (&d)[kState / 2], const UnitRows<L>& rows,
                                               const RowScales& scales, const float* image_scales,
                                               int unit, const std::byte* b, const Place& at) {
  const std::uint64_t db = mn_major<Swizzle::b128>(b, L::kImageTileBytes);
  float shares[2];
  if constexpr (L::kUnits > 1) {
    const float inverse = power_inverse(image_scale<L>(image_scales));
    shares[0] = image_scales[0] * inverse;
    shares[1] = image_scales[kScaleFloats] * inverse;
  }
#pragma unroll
  for (int step = 0; step < rows.kSteps; step += kStateSteps) {
    std::uint32_t a[kStateSteps][4];
#pragma unroll
    for (int k = 0; k < kStateSteps && step + k < rows.kSteps; ++k) {
      rows.load(a[k], step + k, at);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float factor = scales.factor[i % 2];
        if constexpr (L::kUnits > 1) {
          factor *= L::unit_of(unit, step + k) == 0 ? shares[0] : shares[1];
        }
        a[k][i] = pack_f16(factor * unpack_low(a[k][i]), factor * unpack_high(a[k][i]));
      }
    }
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kStateSteps && step + k < rows.kSteps; ++k) {
      Wgmma<kState>::template rs_f16<1>(d, a[k][0], a[k][1], a[k][2], a[k][3],
                                        advance(db, (step + k) * kMnMajorStep), step + k > 0);
    }
    wgmma_commit_group();
    wgmma_wait_group<0>();
  }
}

}  // namespace stowage::kernels::ssd::gradient_frame
