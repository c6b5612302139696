#include "kernels/cross_entropy/loss_sum.hpp"

#include "kernels/cost.hpp"
#include "kernels/cross_entropy/softmax_launch.hpp"
#include "kernels/launch.hpp"
#include "kernels/reduce.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;

template <class S>
int LossSum::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return cross_entropy::launch_loss_sum(tokens, o.losses, o.targets, o.sums, accumulate, stream);
}

Cost LossSum::cost() const {
  return {static_cast<double>(tokens),
          bytes(tokens, execution::accumulation(storage)) + bytes(tokens, Dtype::int32)};
}

template <class S>
void LossSum::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  // Loads without a condition: gcc before 12.4 mixes up the lanes of conditional ones (PR 114375).
  const A sum = ordered_sum<A>(tokens, [losses = o.losses, targets = o.targets](std::int64_t t) {
    const A loss = losses[t];
    return targets[t] >= 0 ? loss : A{0};
  });
  const auto count = ordered_sum<std::int64_t>(
      tokens, [targets = o.targets](std::int64_t t) { return std::int64_t{targets[t] >= 0}; });
  o.sums[0] = accumulate ? o.sums[0] + sum : sum;
  o.sums[1] = accumulate ? o.sums[1] + static_cast<A>(count) : static_cast<A>(count);
}

STOWAGE_REFERENCES(LossSum)

STOWAGE_OPERATOR_RUN(LossSum)

}  // namespace stowage::kernels
