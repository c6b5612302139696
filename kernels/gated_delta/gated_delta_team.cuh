#pragma once

#include <mma.h>

#include <type_traits>

#include "kernels/access.cuh"
#include "kernels/gated_delta/gated_delta_arrays.hpp"
#include "kernels/hopper/warp.cuh"

namespace stowage::kernels::gated_delta {

constexpr int kWarps = 8, kLanes = 32, kThreads = kWarps * kLanes;

/// The threads of a block; its room is shared memory. Products are of tf32 on tensor cores with
/// kTensorCores, of fp32 without. Every sum has one owner and one order.
template <bool kTensorCores>
struct BlockTeam {
  __device__ void sync() const { __syncthreads(); }

  template <class Body>
  __device__ void each(int count, const Body& body) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) body(i);
  }

  /// `done(i, sum of of(i, j) over j)`: a warp a row.
  template <class Of, class Done>
  __device__ void row_sums(int rows, int columns, const Of& of, const Done& done) const {
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    for (int i = static_cast<int>(threadIdx.x) / kLanes; i < rows; i += kWarps) {
      float sum = 0;
      for (int j = lane; j < columns; j += kLanes) sum += of(i, j);
      sum = hopper::lanes_sum<kLanes>(sum);
      if (lane == 0) done(i, sum);
    }
  }

  /// (rows, columns) from memory into a tile (all_rows, all_columns), 0 around it, each row times
  /// its factor if there are any.
  template <class From>
  __device__ void load(const From* from, std::int64_t stride, int rows, int columns, int all_rows,
                       int all_columns, float* to, const float* factors) const {
    const bool packed = stride % device::kPackSize<From> == 0 &&
                        columns % device::kPackSize<From> == 0 &&
                        reinterpret_cast<std::uintptr_t>(from) % sizeof(uint4) == 0;
    if (packed)
      load<From, true>(from, stride, rows, columns, all_rows, all_columns, to, factors);
    else
      load<From, false>(from, stride, rows, columns, all_rows, all_columns, to, factors);
  }

  /// c (m, n) = a (m, k) b (k, n), or c += it; transposed ones lie as (k, m) and (n, k). m, n and k
  /// are multiples of 16.
  template <bool kTransposeA, bool kTransposeB>
  __device__ void product(int m, int n, int k, const float* a, int lda, const float* b, int ldb,
                          float* c, int ldc, bool add) const {
    if constexpr (kTensorCores) {
      using namespace nvcuda;  // NOLINT(google-build-using-namespace): as in all of its examples
      using LayoutA = std::conditional_t<kTransposeA, wmma::col_major, wmma::row_major>;
      using LayoutB = std::conditional_t<kTransposeB, wmma::col_major, wmma::row_major>;
      constexpr int kSide = 16, kDepth = 8;
      const int tiles = n / kSide;
      for (int tile = static_cast<int>(threadIdx.x) / kLanes; tile < m / kSide * tiles;
           tile += kWarps) {
        const int i = tile / tiles * kSide, j = tile % tiles * kSide;
        wmma::fragment<wmma::accumulator, kSide, kSide, kDepth, float> sum;
        if (add)
          wmma::load_matrix_sync(sum, c + i * ldc + j, static_cast<unsigned>(ldc),
                                 wmma::mem_row_major);
        else
          wmma::fill_fragment(sum, 0.0F);
        for (int l = 0; l < k; l += kDepth) {
          wmma::fragment<wmma::matrix_a, kSide, kSide, kDepth, wmma::precision::tf32, LayoutA> left;
          wmma::fragment<wmma::matrix_b, kSide, kSide, kDepth, wmma::precision::tf32, LayoutB>
              right;
          wmma::load_matrix_sync(left, kTransposeA ? a + l * lda + i : a + i * lda + l,
                                 static_cast<unsigned>(lda));
          wmma::load_matrix_sync(right, kTransposeB ? b + j * ldb + l : b + l * ldb + j,
                                 static_cast<unsigned>(ldb));
#pragma unroll
          for (int e = 0; e < left.num_elements; ++e) left.x[e] = wmma::__float_to_tf32(left.x[e]);
#pragma unroll
          for (int e = 0; e < right.num_elements; ++e)
            right.x[e] = wmma::__float_to_tf32(right.x[e]);
          wmma::mma_sync(sum, left, right, sum);
        }
        wmma::store_matrix_sync(c + i * ldc + j, sum, static_cast<unsigned>(ldc),
                                wmma::mem_row_major);
      }
    } else {
      each(m * n, [&](int at) {
        const int i = at / n, j = at % n;
        float sum = add ? c[i * ldc + j] : 0;
        for (int l = 0; l < k; ++l)
          sum = fmaf(kTransposeA ? a[l * lda + i] : a[i * lda + l],
                     kTransposeB ? b[j * ldb + l] : b[l * ldb + j], sum);
        c[i * ldc + j] = sum;
      });
    }
  }

 private:
  template <class From, bool kPacked>
  __device__ void load(const From* from, std::int64_t stride, int rows, int columns, int all_rows,
                       int all_columns, float* to, const float* factors) const {
    using Data = device::Access<From, kPacked>;
    const int packs = (all_columns + Data::kSize - 1) / Data::kSize;
    constexpr int kAtOnce = 4;  // loads of a thread in flight
    const int count = all_rows * packs;
    for (int first = static_cast<int>(threadIdx.x); first < count; first += kAtOnce * kThreads) {
      typename Data::Bits loaded[kAtOnce] = {};
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int i = (first + u * kThreads) / packs;
        const int j = (first + u * kThreads) % packs * Data::kSize;
        if (i < rows && j < columns) loaded[u] = Data::load(from + i * stride + j);
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int i = (first + u * kThreads) / packs;
        const int j = (first + u * kThreads) % packs * Data::kSize;
        if (i >= all_rows) break;
        float values[Data::kSize];
        Data::unpack(loaded[u], values);
        const float factor = factors != nullptr ? factors[i] : 1;
#pragma unroll
        for (int e = 0; e < Data::kSize; ++e)
          to[i * pitch(all_columns) + j + e] = values[e] * factor;
      }
    }
  }
};

}  // namespace stowage::kernels::gated_delta
