#include <algorithm>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/moe/permute.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Bf16;

namespace {
constexpr std::int64_t kRows = 32;
}

// A counting sort, on one thread: its cost is that of reading the indices twice.
template <class A>
void permute_index_ref(std::int64_t tokens, std::int64_t topk, std::int64_t experts,
                       std::int64_t room, const std::int32_t* indices, std::int32_t* offsets,
                       std::int32_t* token_row, A* row_weight, const A* weights) {
  const std::int64_t pairs = tokens * topk;
  std::fill_n(offsets, experts + 1, 0);
  for (std::int64_t pair = 0; pair < pairs; ++pair)
    if (indices[pair] >= 0) ++offsets[indices[pair] + 1];
  for (std::int64_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];

  std::vector<std::int32_t> next(offsets, offsets + experts);
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    token_row[pair] = -1;
    if (indices[pair] < 0) continue;
    const std::int32_t row = next[indices[pair]]++;
    if (row >= room) continue;
    token_row[pair] = row;
    row_weight[row] = weights[pair];
  }
  for (std::int64_t row = offsets[experts]; row < room; ++row) row_weight[row] = A{0};
}

template <class S>
void gather_rows_ref(std::int64_t tokens, std::int64_t topk, std::int64_t width, const S* x,
                     const std::int32_t* token_row, S* xs) {
  execution::host_for(tokens, kRows, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pair = begin * topk; pair < end * topk; ++pair)
      if (token_row[pair] >= 0)
        std::copy_n(x + pair / topk * width, width, xs + token_row[pair] * width);
  });
}

template <class S>
void combine_rows_ref(std::int64_t tokens, std::int64_t topk, std::int64_t width, const S* ys,
                      const std::int32_t* token_row, S* out, bool accumulate) {
  using A = Accumulation<S>;
  execution::host_for(tokens, kRows, [=](std::int64_t begin, std::int64_t end) {
    std::vector<A> sum(static_cast<std::size_t>(width));
    for (std::int64_t t = begin; t < end; ++t) {
      S* to = out + t * width;
      std::ranges::fill(sum, A{0});
      for (std::int64_t r = 0; r < topk; ++r) {
        const std::int32_t row = token_row[t * topk + r];
        if (row < 0) continue;
        const S* from = ys + row * width;
        for (std::int64_t j = 0; j < width; ++j) sum[j] += static_cast<A>(from[j]);
      }
      for (std::int64_t j = 0; j < width; ++j)
        to[j] = static_cast<S>(sum[j] + (accumulate ? static_cast<A>(to[j]) : A{0}));
    }
  });
}

template void permute_index_ref(std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                const std::int32_t*, std::int32_t*, std::int32_t*, float*,
                                const float*);
template void permute_index_ref(std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                const std::int32_t*, std::int32_t*, std::int32_t*, double*,
                                const double*);
#define STOWAGE_INSTANTIATE(S)                                                       \
  template void gather_rows_ref(std::int64_t, std::int64_t, std::int64_t, const S*,  \
                                const std::int32_t*, S*);                            \
  template void combine_rows_ref(std::int64_t, std::int64_t, std::int64_t, const S*, \
                                 const std::int32_t*, S*, bool);
STOWAGE_INSTANTIATE(double)
STOWAGE_INSTANTIATE(float)
STOWAGE_INSTANTIATE(Bf16)
#undef STOWAGE_INSTANTIATE

}  // namespace stowage::kernels
