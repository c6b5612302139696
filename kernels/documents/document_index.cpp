#include "kernels/documents/document_index.hpp"

#include "kernels/cost.hpp"
#include "kernels/documents/document_of_token.hpp"
#include "kernels/operands.hpp"

namespace stowage::kernels {

using execution::Dtype;

void document_index(execution::Queue& queue, const execution::View& cu_seqlens,
                    const execution::View& seq_idx) {
  const Operands operands("document_index");
  operands.rank(cu_seqlens, "cu_seqlens", 1);
  operands.rank(seq_idx, "seq_idx", 1);
  const std::int64_t capacity = cu_seqlens.extent(0) - 1;
  const std::int64_t tokens = seq_idx.extent(0);
  operands.require(capacity >= 0, "cu_seqlens has no element");
  operands.check(cu_seqlens, "cu_seqlens", Dtype::int32, {capacity + 1});
  operands.check(seq_idx, "seq_idx", Dtype::int32, {tokens});
  execution::parallel_for(
      queue, tokens,
      detail::DocumentOfToken{cu_seqlens.as<const std::int32_t>() + 1,
                              static_cast<std::int32_t>(capacity), seq_idx.as<std::int32_t>()});
}

execution::Cost document_index_cost(std::int64_t tokens, std::int64_t capacity) {
  return {0, bytes(tokens + capacity + 1, Dtype::int32)};
}

}  // namespace stowage::kernels
