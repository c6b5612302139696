#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "execution/op.hpp"
#include "kernels/matrix.hpp"
#include "kernels/optimizer/norm_block.hpp"

namespace stowage::kernels {

/// The global norm of gradients in two steps, so that ranks can share them out: the sum of squares of
/// every block of kNormBlock elements of every tensor, then one sum over all blocks. A block's sum
/// has the same bits in whatever pieces tensors are cut, and the norm's depend on the order of the
/// blocks alone.

/// A run of elements of one gradient.
struct NormPiece {
  execution::View gradient;      ///< the elements of the piece, fp32 or fp64
  std::int64_t first = 0;        ///< of them in its tensor: a multiple of kNormBlock
  std::int64_t first_block = 0;  ///< of the whole tensor, among the partial sums
};

/// partials[first_block + first / kNormBlock + b] = sum of squares of block b of each piece, fp64.
/// Other elements of partials are left as they are. A piece ends where a block or its tensor ends.
void norm_partials(execution::Queue& queue, std::span<const NormPiece> pieces,
                   const execution::View& partials);

/// norm (1) fp32 or fp64 = sqrt(sum of all partials), in an order that depends on their number alone.
/// step_ok (1) int32 is set to 0 when the norm is not finite (one NaN or infinity in any gradient
/// makes it so), else left as it is.
void norm_finish(execution::Queue& queue, const execution::View& partials,
                 const execution::View& norm, const execution::View& step_ok,
                 const execution::View& workspace);

/// Room for the sums of chunks of partials.
std::size_t norm_finish_workspace_bytes(std::int64_t blocks);

execution::Cost norm_partials_cost(std::int64_t elements, execution::Dtype dtype);
execution::Cost norm_finish_cost(std::int64_t blocks);

/// One piece in memory that kernels can read.
template <class T>
struct NormPointers {
  const T* gradient = nullptr;
  std::int64_t elements = 0;
  double* partials = nullptr;  ///< of its first block
};

/// Host references; T is float or double. Squares are summed in fp64, which cannot overflow for
/// finite fp32 gradients.
template <class T>
void norm_partials_ref(const NormPointers<T>& piece);
template <class T>
void norm_finish_ref(const double* partials, std::int64_t blocks, T* norm, std::int32_t* step_ok,
                     double* chunks);

}  // namespace stowage::kernels
