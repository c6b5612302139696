#include "kernels/blas.hpp"

#include <cblas.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "execution/host_loops.hpp"

// Another library has none: its own switch (MKL_NUM_THREADS=1) is the user's.
extern "C" void openblas_set_num_threads(int threads) __attribute__((weak));

namespace stowage::kernels {

using execution::Accumulation;
using execution::Bf16;

namespace {

// Tiles of c: high enough for the BLAS' inner kernels, small enough that the products of a small
// model still feed a few threads. Depth bounds the scratch of converted operands.
constexpr std::int64_t kTileRows = 128;
constexpr std::int64_t kTileColumns = 512;
constexpr std::int64_t kTileDepth = 1024;

constexpr CBLAS_TRANSPOSE flag(Transpose transpose) {
  return transpose == Transpose::yes ? CblasTrans : CblasNoTrans;
}

// The library would start threads of its own in each call, and sum in an order that depends on
// their number; here the caller's loops are the only threads.
void use_one_blas_thread() {
  static const bool once =
      openblas_set_num_threads != nullptr && (openblas_set_num_threads(1), true);
  static_cast<void>(once);
}

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

Range tile(std::int64_t index, std::int64_t size, std::int64_t count) {
  return {index * size, std::min((index + 1) * size, count)};
}

std::int64_t tiles(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

// Rows x columns of op(m) in the accumulation type: in place where it is stored so, else converted
// into `scratch`. The result is untransposed memory, like the factor's.
template <class T, class S>
Matrix<const T> part(const Factor<S>& factor, Range rows, Range columns, std::vector<T>& scratch) {
  if (factor.transpose == Transpose::yes) std::swap(rows, columns);
  const std::int64_t stride = factor.matrix.stride;
  const S* data = factor.matrix.data + rows.begin * stride + columns.begin;
  if constexpr (std::is_same_v<S, T>) {
    return {data, rows.size(), columns.size(), stride};
  } else {
    scratch.resize(static_cast<std::size_t>(rows.size() * columns.size()));
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      T* to = scratch.data() + i * columns.size();
      for (std::int64_t j = 0; j < columns.size(); ++j)
        to[j] = static_cast<T>(data[i * stride + j]);
    }
    return {scratch.data(), rows.size(), columns.size(), columns.size()};
  }
}

// c = a b + beta c for one tile, over the whole depth in order.
template <class T, class A, class B>
void multiply_tile(const Factor<A>& a, const Factor<B>& b, Range rows, Range columns,
                   std::int64_t depth, T beta, T* c, std::int64_t ldc) {
  static thread_local std::vector<T> scratch_a, scratch_b;
  for (std::int64_t k = 0; k == 0 || k < depth; k += kTileDepth) {
    const Range inner{k, std::min(k + kTileDepth, depth)};
    const Matrix<const T> left = part<T>(a, rows, inner, scratch_a);
    const Matrix<const T> right = part<T>(b, inner, columns, scratch_b);
    gemm<T>(a.transpose, b.transpose, rows.size(), columns.size(), inner.size(), T{1}, left.data,
            left.stride, right.data, right.stride, k == 0 ? beta : T{1}, c, ldc);
  }
}

template <class T, class C>
void round_tile(const std::vector<T>& sums, Matrix<C> c, Range rows, Range columns,
                bool accumulate) {
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const T* from = sums.data() + i * columns.size();
    C* to = c.row(rows.begin + i) + columns.begin;
    for (std::int64_t j = 0; j < columns.size(); ++j)
      to[j] = static_cast<C>(accumulate ? static_cast<T>(to[j]) + from[j] : from[j]);
  }
}

}  // namespace

template <class T>
void gemm(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n,
          std::int64_t k, T alpha, const T* a, std::int64_t lda, const T* b, std::int64_t ldb,
          T beta, T* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  use_one_blas_thread();
  const auto i32 = [](std::int64_t value) { return static_cast<blasint>(value); };
  const auto ld = [&](std::int64_t value) { return i32(std::max<std::int64_t>(value, 1)); };
  if constexpr (std::is_same_v<T, float>)
    cblas_sgemm(CblasRowMajor, flag(transpose_a), flag(transpose_b), i32(m), i32(n), i32(k), alpha,
                a, ld(lda), b, ld(ldb), beta, c, ld(ldc));
  else
    cblas_dgemm(CblasRowMajor, flag(transpose_a), flag(transpose_b), i32(m), i32(n), i32(k), alpha,
                a, ld(lda), b, ld(ldb), beta, c, ld(ldc));
}

template <class A, class B, class C>
void matmul(Factor<A> a, Factor<B> b, Matrix<C> c, bool accumulate) {
  using T = Accumulation<A>;
  const std::int64_t depth = a.transpose == Transpose::yes ? a.matrix.rows : a.matrix.columns;
  const std::int64_t columns = tiles(c.columns, kTileColumns);
  execution::host_for_each(tiles(c.rows, kTileRows) * columns, [=](std::int64_t index) {
    const Range i = tile(index / columns, kTileRows, c.rows);
    const Range j = tile(index % columns, kTileColumns, c.columns);
    if constexpr (std::is_same_v<C, T>) {
      multiply_tile<T>(a, b, i, j, depth, accumulate ? T{1} : T{0}, &c(i.begin, j.begin), c.stride);
    } else {
      static thread_local std::vector<T> sums;
      sums.resize(static_cast<std::size_t>(i.size() * j.size()));
      multiply_tile<T>(a, b, i, j, depth, T{0}, sums.data(), j.size());
      round_tile(sums, c, i, j, accumulate);
    }
  });
}

template void gemm(Transpose, Transpose, std::int64_t, std::int64_t, std::int64_t, float,
                   const float*, std::int64_t, const float*, std::int64_t, float, float*,
                   std::int64_t);
template void gemm(Transpose, Transpose, std::int64_t, std::int64_t, std::int64_t, double,
                   const double*, std::int64_t, const double*, std::int64_t, double, double*,
                   std::int64_t);

template void matmul(Factor<double>, Factor<double>, Matrix<double>, bool);
template void matmul(Factor<float>, Factor<float>, Matrix<float>, bool);
template void matmul(Factor<Bf16>, Factor<Bf16>, Matrix<Bf16>, bool);
template void matmul(Factor<Bf16>, Factor<Bf16>, Matrix<float>, bool);
template void matmul(Factor<float>, Factor<Bf16>, Matrix<Bf16>, bool);
template void matmul(Factor<float>, Factor<Bf16>, Matrix<float>, bool);

}  // namespace stowage::kernels
