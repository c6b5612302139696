#include "layers/context/attention_exchange.hpp"

#include <fmt/core.h>

#include <algorithm>
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

std::int64_t busiest_pairs(std::int64_t tokens, std::int64_t pairs, int ranks, bool zigzag) {
  const std::int64_t sequence = std::max<std::int64_t>(1, 2 * pairs / tokens - 1);
  const auto before = [&](std::int64_t token) {
    const std::int64_t inside = token % sequence;
    return (token / sequence * sequence * (sequence + 1) + inside * (inside + 1)) / 2;
  };
  const std::int64_t chunks = zigzag ? 2 * ranks : ranks;
  const auto of = [&](std::int64_t chunk) {
    return before((chunk + 1) * tokens / chunks) - before(chunk * tokens / chunks);
  };
  std::int64_t most = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    most = std::max(most, of(rank) + (zigzag ? of(chunks - 1 - rank) : 0));
  return most;
}

}  // namespace stowage::layers
