#include <algorithm>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/moe/permute.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {
constexpr std::int64_t kRows = 32;
}

// A counting sort, on one thread: its cost is that of reading the indices twice.
template <class S>
void PermuteIndex::reference(const Operands<Pointers<S>>& o) const {
  const std::int64_t pairs = tokens * topk;
  std::fill_n(o.offsets, experts + 1, 0);
  for (std::int64_t pair = 0; pair < pairs; ++pair)
    if (o.indices[pair] >= 0) ++o.offsets[o.indices[pair] + 1];
  for (std::int64_t e = 0; e < experts; ++e) o.offsets[e + 1] += o.offsets[e];

  std::vector<std::int32_t> next(o.offsets, o.offsets + experts);
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    o.token_row[pair] = -1;
    if (o.indices[pair] < 0) continue;
    const std::int32_t row = next[o.indices[pair]]++;
    if (row >= rows) continue;
    o.token_row[pair] = row;
    o.row_weight[row] = o.weights[pair];
  }
  for (std::int64_t row = o.offsets[experts]; row < rows; ++row) o.row_weight[row] = 0;
}

template <class S>
void GatherRows::reference(const Operands<Pointers<S>>& o) const {
  execution::host_for(tokens, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pair = begin * topk; pair < end * topk; ++pair)
      if (o.token_row[pair] >= 0)
        std::copy_n(o.x + pair / topk * width, width, o.xs + o.token_row[pair] * width);
  });
}

template <class S>
void CombineRows::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  execution::host_for(tokens, kRows, [&](std::int64_t begin, std::int64_t end) {
    std::vector<A> sum(static_cast<std::size_t>(width));
    for (std::int64_t t = begin; t < end; ++t) {
      S* to = o.out + t * width;
      std::ranges::fill(sum, A{0});
      for (std::int64_t r = 0; r < topk; ++r) {
        const std::int32_t row = o.token_row[t * topk + r];
        if (row < 0) continue;
        const S* from = o.ys + row * width;
        for (std::int64_t j = 0; j < width; ++j) sum[j] += static_cast<A>(from[j]);
      }
      for (std::int64_t j = 0; j < width; ++j)
        to[j] = static_cast<S>(sum[j] + (accumulate ? static_cast<A>(to[j]) : A{0}));
    }
  });
}

STOWAGE_REFERENCES(PermuteIndex)
STOWAGE_REFERENCES(GatherRows)
STOWAGE_REFERENCES(CombineRows)

}  // namespace stowage::kernels
