#include "kernels/norm/head_rmsnorm.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/norm/norm_launch.hpp"
#include "kernels/partials.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

void head_rmsnorm_forward(Queue& queue, const View& in, const View& q_weight, const View& k_weight,
                          const View& out, const HeadSizes& sizes, double eps) {
  const Operands operands("head_rmsnorm_forward");
  const Dtype storage = operands.storage(in, "in");
  operands.rank(in, "in", 2);
  operands.check(in, "in", storage, {in.extent(0), sizes.width()});
  operands.check(q_weight, "q_weight", storage, {sizes.head_dim});
  operands.check(k_weight, "k_weight", storage, {sizes.head_dim});
  operands.same(out, "out", in);
  run(
      queue, "head_rmsnorm_forward", storage,
      [=, n = in.extent(0), in = Address(in), q_weight = Address(q_weight),
       k_weight = Address(k_weight), out = Address(out)]<class S>() {
        head_rmsnorm_forward_ref(n, in.as<const S>(), q_weight.as<const S>(),
                                 k_weight.as<const S>(), out.as<S>(), sizes, eps);
      },
      [&]<class S>(void* stream) {
        return norm::launch(norm::HeadForward<S>{.tokens = in.extent(0),
                                                 .sizes = sizes,
                                                 .in = in.as<const S>(),
                                                 .q_weight = q_weight.as<const S>(),
                                                 .k_weight = k_weight.as<const S>(),
                                                 .out = out.as<S>(),
                                                 .eps = static_cast<float>(eps)},
                            stream);
      });
}

void head_rmsnorm_backward(Queue& queue, const HeadRmsnormBackwardOperands& o,
                           const HeadSizes& sizes, double eps, bool accumulate) {
  const Operands operands("head_rmsnorm_backward");
  const Dtype storage = operands.storage(o.in, "in");
  const Dtype sums = execution::accumulation(storage);
  operands.rank(o.in, "in", 2);
  const std::int64_t n = o.in.extent(0);
  operands.check(o.in, "in", storage, {n, sizes.width()});
  operands.same(o.dout, "dout", o.in);
  operands.check(o.q_weight, "q_weight", storage, {sizes.head_dim});
  operands.check(o.k_weight, "k_weight", storage, {sizes.head_dim});
  operands.same(o.din, "din", o.in);
  operands.check(o.dq_weight, "dq_weight", sums, {sizes.head_dim});
  operands.check(o.dk_weight, "dk_weight", sums, {sizes.head_dim});
  operands.workspace(o.workspace, head_rmsnorm_backward_workspace_bytes(n, sizes, storage));
  run(
      queue, "head_rmsnorm_backward", storage,
      [=, dout = Address(o.dout), in = Address(o.in), q_weight = Address(o.q_weight),
       k_weight = Address(o.k_weight), din = Address(o.din), dq_weight = Address(o.dq_weight),
       dk_weight = Address(o.dk_weight), partials = Address(o.workspace)]<class S>() {
        using A = Accumulation<S>;
        head_rmsnorm_backward_ref(n, dout.as<const S>(), in.as<const S>(), q_weight.as<const S>(),
                                  k_weight.as<const S>(), din.as<S>(), dq_weight.as<A>(),
                                  dk_weight.as<A>(), partials.as<A>(), sizes, eps, accumulate);
      },
      [&]<class S>(void* stream) {
        return norm::launch(
            norm::HeadBackward<S>{.tokens = n,
                                  .sizes = sizes,
                                  .dout = o.dout.as<const S>(),
                                  .in = o.in.as<const S>(),
                                  .q_weight = o.q_weight.as<const S>(),
                                  .k_weight = o.k_weight.as<const S>(),
                                  .din = o.din.as<S>(),
                                  .dq_weight = o.dq_weight.as<float>(),
                                  .dk_weight = o.dk_weight.as<float>(),
                                  .partials = o.workspace ? o.workspace.as<float>() : nullptr,
                                  .eps = static_cast<float>(eps),
                                  .accumulate = accumulate},
            stream);
      });
}

std::size_t head_rmsnorm_backward_workspace_bytes(std::int64_t tokens, const HeadSizes& sizes,
                                                  Dtype storage) {
  if (tokens == 0) return 0;
  const std::int64_t rows = tokens * std::max(sizes.heads, sizes.kv_heads);
  const std::int64_t partials = std::max(partial_count(rows), 2 * norm::kPartials);
  return static_cast<std::size_t>(partials * sizes.head_dim) *
         execution::size_bytes(execution::accumulation(storage));
}

Cost head_rmsnorm_forward_cost(std::int64_t tokens, const HeadSizes& sizes, Dtype storage) {
  const std::int64_t normed = tokens * (sizes.heads + sizes.kv_heads) * sizes.head_dim;
  return {4.0 * static_cast<double>(normed), 2 * bytes(tokens * sizes.width(), storage)};
}

Cost head_rmsnorm_backward_cost(std::int64_t tokens, const HeadSizes& sizes, Dtype storage) {
  const std::int64_t normed = tokens * (sizes.heads + sizes.kv_heads) * sizes.head_dim;
  return {10.0 * static_cast<double>(normed),
          2 * bytes(tokens * sizes.width(), storage) + bytes(normed, storage)};
}

}  // namespace stowage::kernels
