#include <algorithm>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/decode/attention_step.hpp"
#include "kernels/softmax.hpp"

namespace stowage::kernels {

using execution::Accumulation;

template <class S>
void AttentionStep::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const std::int64_t dim = shape.head_dim, queries = shape.heads * dim;
  execution::host_for_each(sequences * shape.kv_heads, [&](std::int64_t index) {
    const std::int64_t b = index / shape.kv_heads, kv_head = index % shape.kv_heads;
    const S* qkv = o.qkv + b * shape.width();
    S* keys = o.keys + index * shape.window * dim;
    S* values = o.values + index * shape.window * dim;
    const std::int64_t position = o.positions[b];
    std::copy_n(qkv + queries + kv_head * dim, dim, keys + position * dim);
    std::copy_n(qkv + queries + (shape.kv_heads + kv_head) * dim, dim, values + position * dim);
    std::vector<A> scores(static_cast<std::size_t>(position + 1)), q(static_cast<std::size_t>(dim)),
        sums(q.size());
    for (std::int64_t head = kv_head * shape.group(); head < (kv_head + 1) * shape.group();
         ++head) {
      for (std::int64_t p = 0; p < dim; ++p)
        q[p] = static_cast<A>(shape.scale) * static_cast<A>(qkv[head * dim + p]);
      for (std::int64_t t = 0; t <= position; ++t)
        scores[t] = ordered_sum<A>(
            dim, [&](std::int64_t p) { return q[p] * static_cast<A>(keys[t * dim + p]); });
      const A sum = exponentials(scores.data(), position + 1, largest(scores.data(), position + 1));
      std::ranges::fill(sums, A{0});
      for (std::int64_t t = 0; t <= position; ++t)
        for (std::int64_t p = 0; p < dim; ++p)
          sums[p] += scores[t] * static_cast<A>(values[t * dim + p]);
      for (std::int64_t p = 0; p < dim; ++p)
        o.o[b * queries + head * dim + p] = static_cast<S>(sums[p] / sum);
    }
  });
}

STOWAGE_REFERENCES(AttentionStep)

}  // namespace stowage::kernels
