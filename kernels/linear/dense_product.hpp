#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "execution/dtype.hpp"
#include "kernels/blas.hpp"

/// The CUDA runtime's stream, declared here so that this header needs no CUDA.
typedef struct CUstream_st* cudaStream_t;

namespace stowage::kernels {

/// One dense product on the GPU: c (m, n) = op(a) (m, k) op(b) (k, n), or c += with `accumulate`;
/// row-major, sums in fp32, each element of c rounded once. This is also the key of the table of
/// algorithms: a product with the same shape always runs the same algorithm.
struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;  ///< elements between rows as stored
  Transpose transpose_a = Transpose::no;                  ///< yes: a is stored (k, m)
  Transpose transpose_b = Transpose::no;                  ///< yes: b is stored (n, k)
  execution::Dtype a = execution::Dtype::bf16;            ///< bf16, fp32 without tf32, e4m3 or e5m2
  execution::Dtype b = execution::Dtype::bf16;  ///< that of a; of 8 bits any but e5m2 twice
  execution::Dtype c = execution::Dtype::bf16;  ///< that of the factors, fp32, or bf16 of 8 bits
  bool accumulate = false;
  bool fast = false;  ///< of 8 bits: sums stay in the 14 bits that Hopper's products add up in
  /// Equal products at once, and elements between their matrices; strides of 0: one by itself.
  std::int64_t batch = 1;
  std::int64_t a_batch_stride = 0, b_batch_stride = 0, c_batch_stride = 0;

  bool is_of_batch() const { return c_batch_stride != 0; }
  /// One of them.
  ProductShape one() const {
    ProductShape alone = *this;
    alone.batch = 1;
    alone.a_batch_stride = alone.b_batch_stride = alone.c_batch_stride = 0;
    return alone;
  }

  friend auto operator<=>(const ProductShape&, const ProductShape&) = default;
};

/// The scales of 8-bit factors, in device memory.
struct ProductScales {
  const float* a = nullptr;
  const float* b = nullptr;
};

/// A product of dense matrices: row strides as the extents give them.
ProductShape dense_shape(std::int64_t m, std::int64_t n, std::int64_t k, Transpose transpose_a,
                         Transpose transpose_b, execution::Dtype factors, execution::Dtype result,
                         bool accumulate);

/// "16384x8192x2048 NT bf16>bf16", "2048x2048x16384 TN bf16>fp32+" (accumulating).
std::string text(const ProductShape& shape);

/// Runs the product by cuBLASLt. Asynchronous on `stream`, capturable, bitwise repeatable.
/// Factors of 8 bits are multiplied by a scale each, and must both have k as their inner dimension
/// (no transposition of a, one of b), with m, n and k multiples of 16.
///
/// The algorithm is the table's for this GPU, library version and shape (product_table.hpp), else
/// the first that the library's heuristics name among those that sum in fp32. Nothing is timed.
/// The table is for operands aligned to 256 bytes: for others the heuristics choose, by the
/// alignment that all of them have. One of a batch runs by the algorithm that it has alone, of
/// operands aligned as their rows are, so that its bits depend neither on how many there are nor on
/// where it lies. The first use of a stream allocates its workspace: call
/// prepare_products() during set-up to have it allocated there.
/// @throws Error if the library refuses the product
void dense_product(const ProductShape& shape, const void* a, const void* b, void* c,
                   cudaStream_t stream, const ProductScales& scales = {});

/// Allocates what products on a stream need: their workspace, once per stream, on the current GPU.
void prepare_products(cudaStream_t stream);

/// The workspace of one stream's products, and the device memory of all streams that have been
/// used (workspace and scratch of each): it is outside of every plan.
inline constexpr std::size_t kProductWorkspaceBytes = std::size_t{32} << 20;
std::size_t product_workspaces_bytes();

/// The part of a stream's workspace that callers may use between products on that stream.
inline constexpr std::size_t kProductScratchBytes = std::size_t{32} << 20;
void* product_scratch(cudaStream_t stream);

/// A product that ran, and the algorithm it ran by: for the result set.
struct ProductRecord {
  ProductShape shape;
  std::string algorithm;  ///< "66 tile 393 stages 36 split 1 …", as the library names its parts
  bool from_table = false;
};

/// Every product that this process ran, in order of shape.
std::vector<ProductRecord> products_used();

/// "cuBLASLt 13.0.2", and as 130002.
std::string product_library();
std::size_t product_library_number();

}  // namespace stowage::kernels
