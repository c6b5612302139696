#include "kernels/decode/likeliest_token.hpp"

#include <cmath>
#include <limits>

#include "execution/host_loops.hpp"
#include "kernels/cost.hpp"
#include "kernels/decode/decode_launch.hpp"
#include "kernels/exponential.hpp"
#include "kernels/launch.hpp"
#include "kernels/reduce.hpp"

namespace stowage::kernels {

using execution::Accumulation;

template <class S>
void LikeliestToken::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  execution::host_for_each(rows, [&](std::int64_t row) {
    const A* logits = o.logits + row * vocabulary;
    std::int64_t token = 0;
    bool finite = true;
    for (std::int64_t i = 0; i < vocabulary; ++i) {
      finite = finite && std::isfinite(logits[i]);
      if (logits[i] > logits[token]) token = i;
    }
    const A most = logits[token];
    const A sum =
        ordered_sum<A>(vocabulary, [=](std::int64_t i) { return exponential(logits[i] - most); });
    o.tokens[row] = static_cast<std::int32_t>(token);
    o.log_probabilities[row] = finite ? -std::log(sum) : std::numeric_limits<A>::quiet_NaN();
  });
}

template <class S>
int LikeliestToken::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return decode::launch(decode::Likeliest{.rows = rows,
                                          .vocabulary = static_cast<int>(vocabulary),
                                          .logits = o.logits,
                                          .tokens = o.tokens,
                                          .log_probabilities = o.log_probabilities},
                        stream);
}

// Flops: a difference, an exponential and a sum of each logit. It is read again from a cache.
execution::Cost LikeliestToken::cost() const {
  return {3.0 * static_cast<double>(rows * vocabulary),
          bytes(rows * vocabulary, execution::accumulation(storage))};
}

STOWAGE_REFERENCES(LikeliestToken)
STOWAGE_OPERATOR_RUN(LikeliestToken)

}  // namespace stowage::kernels
