#include <algorithm>

#include "execution/host_loops.hpp"
#include "kernels/embedding/embedding.hpp"

namespace stowage::kernels {

template <class S>
void EmbeddingForward::reference(const Operands<Pointers<S>>& o) const {
  constexpr std::int64_t kTokens = 64;
  execution::host_for(tokens, kTokens, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      if (o.token[t] < 0)
        std::fill_n(o.x + t * width, width, S{});
      else
        std::copy_n(o.table + o.token[t] * width, width, o.x + t * width);
  });
}

/// Reads the tokens once for each block of columns.
template <class S>
void EmbeddingBackward::reference(const Operands<Pointers<S>>& o) const {
  using A = execution::Accumulation<S>;
  constexpr std::int64_t kColumns = 32;  // a column belongs to one block: no two threads add to it
  execution::host_for(width, kColumns, [&](std::int64_t begin, std::int64_t end) {
    if (!accumulate)
      for (std::int64_t v = 0; v < vocabulary; ++v)
        std::fill(o.dtable + v * width + begin, o.dtable + v * width + end, A{0});
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (o.token[t] < 0) continue;
      const S* from = o.dx + t * width;
      A* to = o.dtable + o.token[t] * width;
      for (std::int64_t j = begin; j < end; ++j) to[j] += static_cast<A>(from[j]);
    }
  });
}

STOWAGE_REFERENCES(EmbeddingForward)
STOWAGE_REFERENCES(EmbeddingBackward)

}  // namespace stowage::kernels
