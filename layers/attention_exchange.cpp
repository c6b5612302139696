#include "layers/attention_exchange.hpp"

#include <fmt/core.h>

#include <string>

#include "execution/error.hpp"

namespace stowage::layers {
namespace {

[[noreturn]] void refuse_heads(const kernels::AttentionShape& shape, int ranks) {
  std::string others;
  for (int context = 2; context <= shape.heads; ++context)
    if (can_exchange_heads(shape, context))
      others += fmt::format("{}{}", others.empty() ? "" : ", ", context);
  execution::throw_usage(
      "parallel.context_attention = \"all_to_all\": parallel.context = {} ranks cannot share {} "
      "query heads and {} query groups of a tensor rank; {}parallel.context_attention = "
      "\"all_gather\" needs no division",
      ranks, shape.heads, shape.kv_heads,
      others.empty() ? "" : fmt::format("parallel.context may be {}; ", others));
}

}  // namespace

bool can_exchange_heads(const kernels::AttentionShape& shape, int ranks) {
  return shape.heads % ranks == 0 && (shape.kv_heads % ranks == 0 || ranks % shape.kv_heads == 0);
}

bool exchanges_heads(const ModelConfig::Attention& attention, const kernels::AttentionShape& shape,
                     int ranks) {
  using Exchange = ModelConfig::Attention::Exchange;
  if (ranks == 1 || attention.exchange == Exchange::keys) return false;
  if (can_exchange_heads(shape, ranks)) return true;
  if (attention.exchange == Exchange::heads) refuse_heads(shape, ranks);
  return false;
}

}  // namespace stowage::layers
