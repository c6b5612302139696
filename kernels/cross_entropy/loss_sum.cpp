#include "kernels/cross_entropy/loss_sum.hpp"

#include "kernels/cost.hpp"
#include "kernels/cross_entropy/softmax_launch.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

void loss_sum(Queue& queue, const View& losses, const View& targets, const View& sums,
              bool accumulate) {
  const Operands operands("loss_sum");
  const Dtype dtype = operands.storage(losses, "losses");
  operands.rank(losses, "losses", 1);
  const std::int64_t n = losses.extent(0);
  operands.check(losses, "losses", execution::accumulation(dtype), {n});
  operands.check(targets, "targets", Dtype::int32, {n});
  operands.check(sums, "sums", dtype, {2});
  run(
      queue, "loss_sum", dtype,
      [n, accumulate, losses = Address(losses), targets = Address(targets),
       sums = Address(sums)]<class S>() {
        using A = Accumulation<S>;
        loss_sum_ref(losses.as<const A>(), targets.as<const std::int32_t>(), n, sums.as<A>(),
                     accumulate);
      },
      [&]<class S>(void* stream) {
        return cross_entropy::launch_loss_sum(n, losses.as<const float>(),
                                              targets.as<const std::int32_t>(), sums.as<float>(),
                                              accumulate, stream);
      });
}

Cost loss_sum_cost(std::int64_t tokens, Dtype dtype) {
  return {static_cast<double>(tokens), bytes(tokens, dtype) + bytes(tokens, Dtype::int32)};
}

}  // namespace stowage::kernels
