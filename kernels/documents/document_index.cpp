#include "kernels/documents/document_index.hpp"

#include "kernels/cost.hpp"
#include "kernels/documents/document_of_token.hpp"

namespace stowage::kernels {

void DocumentIndex::run(execution::Queue& queue, const Operands<execution::View>& views) const {
  check(*this, views);
  execution::parallel_for(queue, tokens,
                          detail::DocumentOfToken{views.cu_seqlens.as<const std::int32_t>() + 1,
                                                  static_cast<std::int32_t>(capacity),
                                                  views.seq_idx.as<std::int32_t>()});
}

execution::Cost DocumentIndex::cost() const {
  return {0, bytes(tokens + capacity + 1, execution::Dtype::int32)};
}

}  // namespace stowage::kernels
