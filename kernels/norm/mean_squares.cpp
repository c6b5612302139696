#include "kernels/norm/mean_squares.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/norm/norm_launch.hpp"
#include "kernels/reduce.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;

template <class S>
int MeanSquares::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return norm::launch_mean_squares(rows, o.rstd, static_cast<float>(eps), o.total, stream);
}

Cost MeanSquares::cost() const {
  return {4.0 * static_cast<double>(rows), bytes(rows, execution::accumulation(storage))};
}

template <class S>
void MeanSquares::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  o.total[0] += ordered_sum<A>(rows, [rstd = o.rstd, eps = static_cast<A>(eps)](std::int64_t r) {
    const A mean = 1 / (rstd[r] * rstd[r]) - eps;
    return mean < 0 ? A{0} : mean;  // NaN stays
  });
}

STOWAGE_REFERENCES(MeanSquares)

STOWAGE_OPERATOR_RUN(MeanSquares)

}  // namespace stowage::kernels
