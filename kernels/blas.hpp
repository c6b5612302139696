#pragma once

#include <cstdint>

#include "execution/dtype.hpp"
#include "kernels/matrix.hpp"

namespace stowage::kernels {

enum class Transpose : bool { no, yes };

/// c (m, n) = alpha * op(a) op(b) + beta * c with op(a) (m, k) and op(b) (k, n), on the calling
/// thread alone (OpenBLAS), so it may be called inside host_for. T is float or double. With
/// `beta` = 0 the old content of c is not read.
template <class T>
void gemm(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n,
          std::int64_t k, T alpha, const T* a, std::int64_t lda, const T* b, std::int64_t ldb,
          T beta, T* c, std::int64_t ldc);

/// One operand of a product: a matrix as it lies in memory, and whether it enters transposed.
template <class T>
struct Factor {
  Matrix<const T> matrix;
  Transpose transpose = Transpose::no;
};

/// c = a b, or c += a b when `accumulate`; in parallel over fixed tiles of c.
///
/// Storage types of a, b and c are any of float and Bf16, or all double. Products are summed in
/// their accumulation type and each element of c is rounded once. Tiles and the order of every sum
/// depend on shapes only, never on the number of threads.
template <class A, class B, class C>
void matmul(Factor<A> a, Factor<B> b, Matrix<C> c, bool accumulate);

}  // namespace stowage::kernels
