#include "kernels/cross_entropy/source_losses.hpp"

#include "kernels/cost.hpp"
#include "kernels/cross_entropy/softmax_launch.hpp"
#include "kernels/launch.hpp"
#include "kernels/reduce.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;

template <class S>
int SourceLosses::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return cross_entropy::launch_source_losses(tokens, sources, o.losses, o.of, o.sums, accumulate,
                                             stream);
}

Cost SourceLosses::cost() const {
  return {static_cast<double>(tokens),
          bytes(tokens, execution::accumulation(storage)) + bytes(tokens, Dtype::int32)};
}

template <class S>
void SourceLosses::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  for (std::int64_t s = 0; s < sources; ++s) {
    // Loads without a condition, as in loss_sum.cpp.
    const A sum = ordered_sum<A>(tokens, [losses = o.losses, of = o.of, s](std::int64_t t) {
      const A loss = losses[t];
      return of[t] == s ? loss : A{0};
    });
    const auto count = ordered_sum<std::int64_t>(
        tokens, [of = o.of, s](std::int64_t t) { return std::int64_t{of[t] == s}; });
    A* to = o.sums + 2 * s;
    to[0] = accumulate ? to[0] + sum : sum;
    to[1] = accumulate ? to[1] + static_cast<A>(count) : static_cast<A>(count);
  }
}

STOWAGE_REFERENCES(SourceLosses)

STOWAGE_OPERATOR_RUN(SourceLosses)

}  // namespace stowage::kernels
