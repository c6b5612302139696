#include "kernels/moe/router.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/moe/router_launch.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

// Options that make sense together, and logits (n, E) in an accumulation dtype, which is returned.
Dtype check_router(const Operands& operands, const Queue& queue, const RouterOptions& o,
                   const View& logits) {
  operands.require(o.experts > 0 && o.topk > 0 && o.groups > 0 && o.experts % o.groups == 0 &&
                       o.group_topk > 0 && o.group_topk <= o.groups &&
                       o.topk <= o.experts / o.groups * o.group_topk,
                   "experts, topk, groups and group_topk do not fit");
  operands.require(queue.stream() == nullptr || o.experts <= moe::kMostExperts,
                   "device code takes up to 1024 experts");
  operands.rank(logits, "logits", 2);
  const Dtype dtype = operands.storage(logits, "logits");
  operands.check(logits, "logits", execution::accumulation(dtype), {logits.extent(0), o.experts});
  return dtype;
}

// The address of N = cu_seqlens[C].
const std::int32_t* routed_address(const Operands& operands, const View& cu_seqlens) {
  operands.rank(cu_seqlens, "cu_seqlens", 1);
  operands.check(cu_seqlens, "cu_seqlens", Dtype::int32, {cu_seqlens.extent(0)});
  operands.require(cu_seqlens.extent(0) > 0, "cu_seqlens has no element");
  return cu_seqlens.as<const std::int32_t>() + cu_seqlens.extent(0) - 1;
}

double count(std::int64_t tokens, int per_token) { return static_cast<double>(tokens) * per_token; }

}  // namespace

void router_select(Queue& queue, const RouterOptions& options, const View& logits, const View& bias,
                   const View& cu_seqlens, const View& indices, const View& weights) {
  const Operands operands("router_select");
  const Dtype dtype = check_router(operands, queue, options, logits);
  const std::int64_t n = logits.extent(0);
  operands.check_optional(bias, "bias", dtype, {options.experts});
  operands.check(indices, "indices", Dtype::int32, {n, options.topk});
  operands.check_optional(weights, "weights", dtype, {n, options.topk});
  const std::int32_t* routed = routed_address(operands, cu_seqlens);
  run(
      queue, "router_select", dtype,
      [=, logits = Address(logits), bias = Address(bias), indices = Address(indices),
       weights = Address(weights)]<class S>() {
        using A = Accumulation<S>;
        router_select_ref(n, options, logits.as<const A>(), bias.as<const A>(), routed,
                          indices.as<std::int32_t>());
        if (weights.as<A>() != nullptr)
          router_weights_ref(n, options, logits.as<const A>(), indices.as<const std::int32_t>(),
                             weights.as<A>());
      },
      [&]<class S>(void* stream) {
        using A = Accumulation<S>;
        return moe::launch_router_select(
            n, options, logits.as<const A>(), Address(bias).as<const A>(), routed,
            indices.as<std::int32_t>(), Address(weights).as<A>(), stream);
      });
}

void router_weights(Queue& queue, const RouterOptions& options, const View& logits,
                    const View& indices, const View& weights) {
  const Operands operands("router_weights");
  const Dtype dtype = check_router(operands, queue, options, logits);
  const std::int64_t n = logits.extent(0);
  operands.check(indices, "indices", Dtype::int32, {n, options.topk});
  operands.check(weights, "weights", dtype, {n, options.topk});
  run(
      queue, "router_weights", dtype,
      [=, logits = Address(logits), indices = Address(indices),
       weights = Address(weights)]<class S>() {
        using A = Accumulation<S>;
        router_weights_ref(n, options, logits.as<const A>(), indices.as<const std::int32_t>(),
                           weights.as<A>());
      },
      [&]<class S>(void* stream) {
        using A = Accumulation<S>;
        return moe::launch_router_weights(n, options, logits.as<const A>(),
                                          indices.as<const std::int32_t>(), weights.as<A>(),
                                          stream);
      });
}

void router_backward(Queue& queue, const RouterOptions& options, const View& dweights_rows,
                     const View& token_row, const View& logits, const View& indices,
                     const View& weights, const View& offsets, const View& cu_seqlens,
                     const View& dlogits) {
  const Operands operands("router_backward");
  const Dtype dtype = check_router(operands, queue, options, logits);
  const std::int64_t n = logits.extent(0), topk = options.topk;
  operands.check(dweights_rows, "dweights_rows", dtype, {n * topk});
  operands.check(token_row, "token_row", Dtype::int32, {n, topk});
  operands.check(indices, "indices", Dtype::int32, {n, topk});
  operands.check(weights, "weights", dtype, {n, topk});
  operands.check(offsets, "offsets", Dtype::int32, {options.experts + 1});
  operands.check(dlogits, "dlogits", dtype, {n, options.experts});
  const std::int32_t* routed = routed_address(operands, cu_seqlens);
  run(
      queue, "router_backward", dtype,
      [=, dweights = Address(dweights_rows), token_row = Address(token_row),
       logits = Address(logits), indices = Address(indices), weights = Address(weights),
       offsets = Address(offsets), dlogits = Address(dlogits)]<class S>() {
        using A = Accumulation<S>;
        router_backward_ref(n, options, dweights_rows.as<const A>(),
                            token_row.as<const std::int32_t>(), logits.as<const A>(),
                            indices.as<const std::int32_t>(), weights.as<const A>(),
                            offsets.as<const std::int32_t>(), routed, dlogits.as<A>());
      },
      [&]<class S>(void* stream) {
        using A = Accumulation<S>;
        return moe::launch_router_backward(
            n, options, dweights_rows.as<const A>(), token_row.as<const std::int32_t>(),
            logits.as<const A>(), indices.as<const std::int32_t>(), weights.as<const A>(),
            offsets.as<const std::int32_t>(), routed, dlogits.as<A>(), stream);
      });
}

void router_losses(Queue& queue, const RouterOptions& options, const View& logits,
                   const View& offsets, const View& cu_seqlens, const View& losses,
                   bool accumulate) {
  const Operands operands("router_losses");
  const Dtype dtype = check_router(operands, queue, options, logits);
  const std::int64_t n = logits.extent(0);
  operands.check(offsets, "offsets", Dtype::int32, {options.experts + 1});
  operands.check(losses, "losses", dtype, {2});
  const std::int32_t* routed = routed_address(operands, cu_seqlens);
  run(
      queue, "router_losses", dtype,
      [=, logits = Address(logits), offsets = Address(offsets),
       losses = Address(losses)]<class S>() {
        using A = Accumulation<S>;
        router_losses_ref(n, options, logits.as<const A>(), offsets.as<const std::int32_t>(),
                          routed, losses.as<A>(), accumulate);
      },
      [&]<class S>(void* stream) {
        using A = Accumulation<S>;
        return moe::launch_router_losses(n, options, logits.as<const A>(),
                                         offsets.as<const std::int32_t>(), routed, losses.as<A>(),
                                         accumulate, stream);
      });
}

Cost router_select_cost(std::int64_t tokens, const RouterOptions& o, Dtype accumulation,
                        bool weights) {
  const std::int64_t weighed = weights ? tokens * o.topk : 0;
  return {(weights ? 8 : 4) * count(tokens, o.experts),
          bytes(tokens * o.experts + o.experts + weighed, accumulation) +
              bytes(tokens * o.topk, Dtype::int32)};
}

Cost router_weights_cost(std::int64_t tokens, const RouterOptions& o, Dtype accumulation) {
  return {4 * count(tokens, o.experts), bytes(tokens * (o.experts + o.topk), accumulation) +
                                            bytes(tokens * o.topk, Dtype::int32)};
}

Cost router_backward_cost(std::int64_t tokens, const RouterOptions& o, Dtype accumulation) {
  return {16 * count(tokens, o.experts),
          bytes(tokens * (2 * o.experts + 2 * o.topk), accumulation) +
              bytes(2 * tokens * o.topk, Dtype::int32) + bytes(o.experts + 1, Dtype::int32)};
}

Cost router_losses_cost(std::int64_t tokens, const RouterOptions& o, Dtype accumulation) {
  return {8 * count(tokens, o.experts),
          bytes(tokens * o.experts + 2, accumulation) + bytes(o.experts + 1, Dtype::int32)};
}

}  // namespace stowage::kernels
