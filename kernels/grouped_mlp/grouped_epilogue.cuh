#pragma once

#include <cstdint>

#include "kernels/hopper/convert.cuh"
#include "kernels/hopper/matrix_move.cuh"
#include "kernels/hopper/shared_address.cuh"
#include "kernels/hopper/warp.cuh"

/// From wgmma accumulators to bf16 rows in memory, one warp and 16 rows at a time. The sums go
/// rounded to shared memory, which frees their registers; from there they are taken in pieces of 16
/// bytes, eight lanes to a row, in which memory is accessed and elementwise work is done.
namespace stowage::kernels::grouped {

/// This thread's index, read here and now: what is computed from it is not kept in registers from
/// before the products, which leave none.
__device__ __forceinline__ int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

/// Rows in memory, 16-byte aligned. `rows` and `columns` of them exist; either may be more than are
/// asked for, or less than one. Columns are a multiple of 8.
struct Bf16Rows {
  std::uint16_t* data;
  std::int64_t stride;  // elements
  int rows;
  int columns;

  __device__ __forceinline__ bool has(int row, int column) const {
    return row < rows && column < columns;
  }
  /// The 8 elements of a row from `column` on.
  __device__ __forceinline__ uint4& piece(int row, int column) const {
    return *reinterpret_cast<uint4*>(data + row * stride + column);
  }
  /// The same rows and columns of a matrix that lies `elements` to the right.
  __device__ __forceinline__ Bf16Rows right(std::int64_t elements) const {
    return {data + elements, stride, rows, columns};
  }
};

/// Sums rounded to bf16, which frees half of their registers.
template <int kCount>
__device__ __forceinline__ void round_sums(const float (&sums)[kCount],
                                           std::uint32_t (&pairs)[kCount / 2]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    pairs[i] = hopper::pack_bf16(sums[2 * i], sums[2 * i + 1]);
  }
}

/// 16 rows of a tile in a warp's shared memory.
template <int kWidth>
class StagedRows {
 public:
  static constexpr int kPitch = 2 * kWidth + 16;  // bytes; an odd number of pieces: no conflicts
  static constexpr int kBytes = 16 * kPitch;

  __device__ __forceinline__ StagedRows(unsigned char* room, int lane) : room_(room), lane_(lane) {}

  /// A lane's place: rows first_row(), first_row() + 4, ..; columns first_column(), + 64, ...
  __device__ __forceinline__ int first_row() const { return lane_ / 8; }
  __device__ __forceinline__ int first_column() const { return lane_ % 8 * 8; }

  __device__ __forceinline__ uint4& piece(int row, int column) const {
    return *reinterpret_cast<uint4*>(room_ + row * kPitch + column * 2);
  }

  /// Rounds the sums into the room; with `add`, on top of what is there. Waits for the warp before
  /// and after.
  __device__ __forceinline__ void stage(const float (&sums)[kWidth / 2], bool add) const {
    const std::uint32_t base = corner();
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kWidth / 16; ++j) {
      const float* s = sums + 8 * j;
      std::uint32_t old[4] = {0, 0, 0, 0};
      if (add) hopper::ldmatrix_x4(old, base + 32 * j);
      std::uint32_t sum[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum[i] = hopper::pack_bf16(s[2 * i] + hopper::unpack_low(old[i]),
                                   s[2 * i + 1] + hopper::unpack_high(old[i]));
      }
      hopper::stmatrix_x4(base + 32 * j, sum[0], sum[1], sum[2], sum[3]);
    }
    __syncwarp();
  }

  /// The same for sums that are rounded already.
  __device__ __forceinline__ void stage(const std::uint32_t (&pairs)[kWidth / 4]) const {
    const std::uint32_t base = corner();
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kWidth / 16; ++j) {
      const std::uint32_t* p = pairs + 4 * j;
      hopper::stmatrix_x4(base + 32 * j, p[0], p[1], p[2], p[3]);
    }
    __syncwarp();
  }

 private:
  /// Where this lane has matrices moved to.
  __device__ __forceinline__ std::uint32_t corner() const {
    return hopper::shared_address(room_) +
           static_cast<std::uint32_t>(lane_ % 16 * kPitch + lane_ / 16 * 16);
  }

  unsigned char* room_;
  int lane_;
};

/// Stores a piece as one access, which the compiler does not see to by itself.
__device__ __forceinline__ void store_piece(uint4* to, const uint4& value) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}

/// Eight bf16 as fp32, and back.
struct Piece {
  __device__ __forceinline__ explicit Piece(const uint4& bits) {
    const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[2 * i] = hopper::unpack_low(words[i]);
      values[2 * i + 1] = hopper::unpack_high(words[i]);
    }
  }
  __device__ __forceinline__ uint4 bits() const {
    return {hopper::pack_bf16(values[0], values[1]), hopper::pack_bf16(values[2], values[3]),
            hopper::pack_bf16(values[4], values[5]), hopper::pack_bf16(values[6], values[7])};
  }

  float values[8];
};

}  // namespace stowage::kernels::grouped
