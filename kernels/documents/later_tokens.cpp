#include "kernels/documents/later_tokens.hpp"

#include "kernels/cost.hpp"
#include "kernels/documents/later_token.hpp"

namespace stowage::kernels {

void LaterTokens::run(execution::Queue& queue, const Operands<execution::View>& views) const {
  check(*this, views);
  execution::parallel_for(
      queue, tokens,
      detail::LaterToken{views.ids.as<const std::int32_t>(), views.seq_idx.as<const std::int32_t>(),
                         tokens, distance, views.later.as<std::int32_t>()});
}

execution::Cost LaterTokens::cost() const {
  return {0, bytes(3 * tokens, execution::Dtype::int32)};
}

}  // namespace stowage::kernels
