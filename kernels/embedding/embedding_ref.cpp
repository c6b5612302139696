#include <algorithm>

#include "execution/host_loops.hpp"
#include "kernels/embedding/embedding.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Bf16;

template <class S>
void embedding_forward_ref(std::int64_t tokens, std::int64_t width, const std::int32_t* token,
                           const S* table, S* x) {
  constexpr std::int64_t kTokens = 64;
  execution::host_for(tokens, kTokens, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      if (token[t] < 0)
        std::fill_n(x + t * width, width, S{});
      else
        std::copy_n(table + token[t] * width, width, x + t * width);
  });
}

template <class S>
void embedding_backward_ref(std::int64_t tokens, std::int64_t vocabulary, std::int64_t width,
                            const std::int32_t* token, const S* dx, Accumulation<S>* dtable,
                            bool accumulate) {
  using A = Accumulation<S>;
  constexpr std::int64_t kColumns = 32;  // a column belongs to one block: no two threads add to it
  execution::host_for(width, kColumns, [=](std::int64_t begin, std::int64_t end) {
    if (!accumulate)
      for (std::int64_t v = 0; v < vocabulary; ++v)
        std::fill(dtable + v * width + begin, dtable + v * width + end, A{0});
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (token[t] < 0) continue;
      const S* from = dx + t * width;
      A* to = dtable + token[t] * width;
      for (std::int64_t j = begin; j < end; ++j) to[j] += static_cast<A>(from[j]);
    }
  });
}

#define STOWAGE_INSTANTIATE(S)                                                                   \
  template void embedding_forward_ref(std::int64_t, std::int64_t, const std::int32_t*, const S*, \
                                      S*);                                                       \
  template void embedding_backward_ref(std::int64_t, std::int64_t, std::int64_t,                 \
                                       const std::int32_t*, const S*, Accumulation<S>*, bool);
STOWAGE_INSTANTIATE(double)
STOWAGE_INSTANTIATE(float)
STOWAGE_INSTANTIATE(Bf16)
#undef STOWAGE_INSTANTIATE

}  // namespace stowage::kernels
