#pragma once

#include <cstdint>
#include <span>

#include "execution/op.hpp"
#include "kernels/matrix.hpp"
#include "kernels/optimizer/norm_block.hpp"

/// The norm of all gradients, sqrt(sum of squares), in two operators: sums of fixed blocks, which
/// ranks may share out among them, and the sum of those. Squares are added in fp64, which cannot
/// overflow for finite fp32 gradients, in the order of norm_block.hpp: the same bits on both
/// backends, however the tensors are cut.
namespace stowage::kernels {

/// Some consecutive blocks of a gradient: of kNormBlock elements, the tensor's last one of fewer.
/// Block b of the tensor is its elements from b * kNormBlock on.
struct NormPiece {
  execution::View gradient;  ///< fp32 or fp64; its data begin at the piece
  std::int64_t first = 0;    ///< the piece's first element in its tensor, a multiple of kNormBlock
  std::int64_t elements = -1;  ///< of the piece; a multiple of kNormBlock if the tensor goes on
  std::int64_t slot = 0;       ///< of the tensor's block 0; block b has slot + b
  /// Elements of the tensor that count as 0: another rank answers for them.
  execution::Range left_out = {0, 0};
};

/// partials[slot + b] = the sum of squares of block b, for each block that lies in a piece. Other
/// slots are left as they are: fill them with 0 where ranks share the blocks.
///
/// All pieces have one dtype; partials: fp64, rank 1. A piece of no elements writes nothing.
void norm_partials(execution::Queue& queue, std::span<const NormPiece> pieces,
                   const execution::View& partials);

/// norm (1) = sqrt of the sum of partials (slots) fp64.
///
/// norm is fp32 or fp64. step_ok (1) int32 is set to 0 when the norm is not finite (one NaN or
/// infinity in any gradient makes it so), else left as it is: it starts as 1 at the beginning of a
/// step.
void norm_finish(execution::Queue& queue, const execution::View& partials,
                 const execution::View& norm, const execution::View& step_ok);

execution::Cost norm_partials_cost(std::int64_t elements, execution::Dtype dtype);
execution::Cost norm_finish_cost(std::int64_t slots);

/// A piece in memory.
template <class T>
struct NormPointers {
  const T* gradient = nullptr;
  std::int64_t elements = 0;
  std::int64_t slot = 0;                    ///< of its first block
  std::int64_t out_begin = 0, out_end = 0;  ///< elements of the piece that count as 0
};

/// Host references; T is float or double.
template <class T>
void norm_partials_ref(const NormPointers<T>& piece, double* partials);
template <class T>
void norm_finish_ref(std::span<const double> partials, T* norm, std::int32_t* step_ok);

}  // namespace stowage::kernels
