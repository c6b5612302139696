#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/embedding/embedding_launch.hpp"

namespace stowage::kernels::embedding {

/// The positions of each token: list[start .. start + count) in any order, and for more than
/// kLongList of them ordered[start .. start + count), ascending. Lists, and the tokens that occur,
/// lie in any order.
struct TokenLists {
  NamedToken* named;       ///< (n), of which totals[kNamed] are set
  NamedToken* long_named;  ///< (n / kLongList), those of long lists, totals[kLong] of them
  std::int32_t* count;     ///< (V): how often each token occurs
  std::int32_t* start;     ///< (V): of its list; not set if it does not occur
  std::int32_t* slot;      ///< (n): place of a position in its list
  std::int32_t* list;      ///< (n)
  std::int32_t* ordered;   ///< (n), set in long lists
  std::int32_t* totals;    ///< (kTotals); kUsed: positions given to lists
};

/// The arrays in a workspace of embedding_backward_workspace_bytes.
TokenLists lists_in(void* workspace, std::int64_t tokens, std::int64_t vocabulary);

cudaError_t launch_lists(const std::int32_t* token, std::int64_t tokens, std::int64_t vocabulary,
                         const TokenLists& lists, cudaStream_t stream);

}  // namespace stowage::kernels::embedding
