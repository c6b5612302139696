#include "kernels/embedding/embedding.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/embedding/embedding_launch.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

template <class S>
int EmbeddingForward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return embedding::launch(
      embedding::Forward<S>{
          .tokens = tokens, .width = width, .token = o.token, .table = o.table, .x = o.x},
      stream);
}

Cost EmbeddingForward::cost() const {
  return {0, bytes(tokens, Dtype::int32) + 2 * bytes(tokens * width, storage)};
}

template <class S>
int EmbeddingBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return embedding::launch(embedding::Backward<S>{.tokens = tokens,
                                                  .vocabulary = vocabulary,
                                                  .width = width,
                                                  .token = o.token,
                                                  .dx = o.dx,
                                                  .dtable = o.dtable,
                                                  .workspace = o.workspace,
                                                  .accumulate = accumulate},
                           stream);
}

std::size_t EmbeddingBackward::workspace_bytes() const {
  // The arrays of a GPU (token_lists.cuh).
  const std::int64_t named = tokens + tokens / embedding::kLongList;
  return static_cast<std::size_t>(named) * sizeof(embedding::NamedToken) +
         static_cast<std::size_t>(2 * vocabulary + 3 * tokens + embedding::kTotals) *
             sizeof(std::int32_t);
}

Cost EmbeddingBackward::cost() const {
  const Dtype accumulation = execution::accumulation(storage);
  const double gradient = accumulate ? 2 * bytes(std::min(tokens, vocabulary) * width, accumulation)
                                     : bytes(vocabulary * width, accumulation);
  return {static_cast<double>(tokens * width),
          bytes(tokens, Dtype::int32) + bytes(tokens * width, storage) + gradient};
}

STOWAGE_OPERATOR_RUN(EmbeddingForward)
STOWAGE_OPERATOR_RUN(EmbeddingBackward)

}  // namespace stowage::kernels
