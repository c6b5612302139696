#include "kernels/moe/permute.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/moe/permute_launch.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

void permute_index(Queue& queue, const View& indices, const View& offsets, const View& token_row,
                   const View& row_weight, const View& weights) {
  const Operands operands("permute_index");
  operands.rank(indices, "indices", 2);
  operands.rank(offsets, "offsets", 1);
  operands.rank(row_weight, "row_weight", 1);
  const Dtype dtype = operands.storage(weights, "weights");
  const std::int64_t n = indices.extent(0), topk = indices.extent(1), room = row_weight.extent(0);
  const std::int64_t experts = offsets.extent(0) - 1;
  operands.require(queue.stream() == nullptr || (experts <= moe::kMostPermutedExperts &&
                                                 n * topk <= moe::kMostPermutedPairs),
                   "device code takes up to 1024 experts and 2^30 pairs");
  operands.check(indices, "indices", Dtype::int32, {n, topk});
  operands.check(offsets, "offsets", Dtype::int32, {experts + 1});
  operands.check(token_row, "token_row", Dtype::int32, {n, topk});
  operands.require(room <= n * topk, "row_weight has more elements than indices");
  operands.check(row_weight, "row_weight", execution::accumulation(dtype), {room});
  operands.check(weights, "weights", execution::accumulation(dtype), {n, topk});
  run(
      queue, "permute_index", dtype,
      [=, indices = Address(indices), offsets = Address(offsets), token_row = Address(token_row),
       row_weight = Address(row_weight), weights = Address(weights)]<class S>() {
        using A = Accumulation<S>;
        permute_index_ref(n, topk, experts, room, indices.as<const std::int32_t>(),
                          offsets.as<std::int32_t>(), token_row.as<std::int32_t>(),
                          row_weight.as<A>(), weights.as<const A>());
      },
      [&]<class S>(void* stream) {
        using A = Accumulation<S>;
        return moe::launch_permute_index(n, topk, experts, room, indices.as<const std::int32_t>(),
                                         offsets.as<std::int32_t>(), token_row.as<std::int32_t>(),
                                         row_weight.as<A>(), weights.as<const A>(), stream);
      });
}

void gather_rows(Queue& queue, const View& x, const View& token_row, const View& xs) {
  const Operands operands("gather_rows");
  const Dtype storage = operands.storage(x, "x");
  operands.rank(x, "x", 2);
  operands.rank(token_row, "token_row", 2);
  operands.rank(xs, "xs", 2);
  const std::int64_t n = x.extent(0), topk = token_row.extent(1), width = x.extent(1);
  operands.check(token_row, "token_row", Dtype::int32, {n, topk});
  operands.check(xs, "xs", storage, {xs.extent(0), width});
  run(
      queue, "gather_rows", storage,
      [=, x = Address(x), token_row = Address(token_row), xs = Address(xs)]<class S>() {
        gather_rows_ref(n, topk, width, x.as<const S>(), token_row.as<const std::int32_t>(),
                        xs.as<S>());
      },
      [&]<class S>(void* stream) {
        return moe::launch_gather_rows(n, topk, width, x.as<const S>(),
                                       token_row.as<const std::int32_t>(), xs.as<S>(), stream);
      });
}

void combine_rows(Queue& queue, const View& ys, const View& token_row, const View& out,
                  bool accumulate) {
  const Operands operands("combine_rows");
  const Dtype storage = operands.storage(ys, "ys");
  operands.rank(ys, "ys", 2);
  operands.rank(token_row, "token_row", 2);
  const std::int64_t n = token_row.extent(0), topk = token_row.extent(1), width = ys.extent(1);
  operands.check(ys, "ys", storage, {ys.extent(0), width});
  operands.check(token_row, "token_row", Dtype::int32, {n, topk});
  operands.check(out, "out", storage, {n, width});
  run(
      queue, "combine_rows", storage,
      [=, ys = Address(ys), token_row = Address(token_row), out = Address(out)]<class S>() {
        combine_rows_ref(n, topk, width, ys.as<const S>(), token_row.as<const std::int32_t>(),
                         out.as<S>(), accumulate);
      },
      [&]<class S>(void* stream) {
        return moe::launch_combine_rows(n, topk, width, ys.as<const S>(),
                                        token_row.as<const std::int32_t>(), out.as<S>(), accumulate,
                                        stream);
      });
}

Cost permute_index_cost(std::int64_t tokens, std::int64_t topk, std::int64_t experts,
                        Dtype accumulation) {
  const std::int64_t pairs = tokens * topk;
  return {0, bytes(2 * pairs + experts + 1, Dtype::int32) + bytes(2 * pairs, accumulation)};
}

// A token without a routed pair is not read.
Cost gather_rows_cost(std::int64_t tokens, std::int64_t topk, std::int64_t rows, std::int64_t width,
                      Dtype storage) {
  return {0, bytes((std::min(tokens, rows) + rows) * width, storage) +
                 bytes(tokens * topk, Dtype::int32)};
}

Cost combine_rows_cost(std::int64_t tokens, std::int64_t topk, std::int64_t rows,
                       std::int64_t width, Dtype storage, bool accumulate) {
  return {static_cast<double>(rows * width),
          bytes(rows * width, storage) + passes(accumulate) * bytes(tokens * width, storage) +
              bytes(tokens * topk, Dtype::int32)};
}

}  // namespace stowage::kernels
