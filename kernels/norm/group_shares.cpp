#include "kernels/norm/group_shares.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/norm/norm_launch.hpp"

namespace stowage::kernels {

using execution::Cost;

template <class S>
int GatedSquares::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return norm::launch(sums(o), stream);
}

Cost GatedSquares::cost() const {
  return {6.0 * static_cast<double>(rows * width),
          2 * bytes(rows * width, storage) + bytes(rows, execution::accumulation(storage))};
}

template <class S>
int GatedProjections::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return norm::launch(sums(o), stream);
}

Cost GatedProjections::cost() const {
  return {7.0 * static_cast<double>(rows * width),
          3 * bytes(rows * width, storage) + bytes(width, storage) +
              bytes(rows, execution::accumulation(storage))};
}

STOWAGE_OPERATOR_RUN(GatedSquares)
STOWAGE_OPERATOR_RUN(GatedProjections)

}  // namespace stowage::kernels
