#include "kernels/embedding/embedding.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/embedding/embedding_launch.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

void embedding_forward(Queue& queue, const View& tokens, const View& table, const View& x) {
  const Operands operands("embedding_forward");
  const Dtype storage = operands.storage(table, "table");
  operands.rank(table, "table", 2);
  operands.rank(tokens, "tokens", 1);
  const std::int64_t n = tokens.extent(0), width = table.extent(1);
  operands.check(tokens, "tokens", Dtype::int32, {n});
  operands.check(x, "x", storage, {n, width});
  run(
      queue, "embedding_forward", storage,
      [=, token = Address(tokens), table = Address(table), x = Address(x)]<class S>() {
        embedding_forward_ref(n, width, token.as<const std::int32_t>(), table.as<const S>(),
                              x.as<S>());
      },
      [&]<class S>(void* stream) {
        return embedding::launch(embedding::Forward<S>{.tokens = n,
                                                       .width = width,
                                                       .token = tokens.as<const std::int32_t>(),
                                                       .table = table.as<const S>(),
                                                       .x = x.as<S>()},
                                 stream);
      });
}

void embedding_backward(Queue& queue, const View& tokens, const View& dx, const View& dtable,
                        const View& workspace, bool accumulate) {
  const Operands operands("embedding_backward");
  const Dtype storage = operands.storage(dx, "dx");
  operands.rank(dx, "dx", 2);
  operands.rank(dtable, "dtable", 2);
  const std::int64_t n = dx.extent(0), vocabulary = dtable.extent(0), width = dx.extent(1);
  operands.check(tokens, "tokens", Dtype::int32, {n});
  operands.check(dtable, "dtable", execution::accumulation(storage), {vocabulary, width});
  operands.workspace(workspace, embedding_backward_workspace_bytes(n, vocabulary));
  run(
      queue, "embedding_backward", storage,
      [=, token = Address(tokens), dx = Address(dx), dtable = Address(dtable)]<class S>() {
        embedding_backward_ref(n, vocabulary, width, token.as<const std::int32_t>(),
                               dx.as<const S>(), dtable.as<Accumulation<S>>(), accumulate);
      },
      [&]<class S>(void* stream) {
        return embedding::launch(embedding::Backward<S>{.tokens = n,
                                                        .vocabulary = vocabulary,
                                                        .width = width,
                                                        .token = tokens.as<const std::int32_t>(),
                                                        .dx = dx.as<const S>(),
                                                        .dtable = dtable.as<float>(),
                                                        .workspace = workspace.data[0],
                                                        .accumulate = accumulate},
                                 stream);
      });
}

std::size_t embedding_backward_workspace_bytes(std::int64_t tokens, std::int64_t vocabulary) {
  // The arrays of a GPU (token_lists.cuh).
  const std::int64_t named = tokens + tokens / embedding::kLongList;
  return static_cast<std::size_t>(named) * sizeof(embedding::NamedToken) +
         static_cast<std::size_t>(2 * vocabulary + 3 * tokens + embedding::kTotals) *
             sizeof(std::int32_t);
}

Cost embedding_forward_cost(std::int64_t tokens, std::int64_t width, Dtype storage) {
  return {0, bytes(tokens, Dtype::int32) + 2 * bytes(tokens * width, storage)};
}

Cost embedding_backward_cost(std::int64_t tokens, std::int64_t vocabulary, std::int64_t width,
                             Dtype storage, bool accumulate) {
  const Dtype accumulation = execution::accumulation(storage);
  const double gradient = accumulate ? 2 * bytes(std::min(tokens, vocabulary) * width, accumulation)
                                     : bytes(vocabulary * width, accumulation);
  return {static_cast<double>(tokens * width),
          bytes(tokens, Dtype::int32) + bytes(tokens * width, storage) + gradient};
}

}  // namespace stowage::kernels
