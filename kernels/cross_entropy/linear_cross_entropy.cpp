#include "kernels/cross_entropy/linear_cross_entropy.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/cross_entropy/linear_cross_entropy_cuda.hpp"
#include "kernels/cross_entropy/row_chunk.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

// The checks that both operators share.
Dtype check(const Operands& operands, const View& h, const View& w, const View& targets,
            const View& losses, const View& workspace) {
  const Dtype storage = operands.storage(h, "h");
  operands.rank(h, "h", 2);
  operands.rank(w, "w", 2);
  const std::int64_t n = h.extent(0), width = h.extent(1), vocabulary = w.extent(0);
  operands.check(w, "w", storage, {vocabulary, width});
  operands.require(vocabulary > 0, "the vocabulary is empty");
  operands.check(targets, "targets", Dtype::int32, {n});
  operands.check(losses, "losses", execution::accumulation(storage), {n});
  operands.workspace(workspace,
                     linear_cross_entropy_workspace_bytes(n, vocabulary, width, storage));
  return storage;
}

// What both operators give to the GPU.
template <class S>
cross_entropy::Operands<S> device_operands(const View& h, const View& w, const View& targets,
                                           const View& losses, const View& workspace) {
  return {.tokens = h.extent(0),
          .vocabulary = w.extent(0),
          .width = h.extent(1),
          .h = h.as<const S>(),
          .w = w.as<const S>(),
          .targets = targets.as<const std::int32_t>(),
          .scale = nullptr,
          .losses = losses.as<float>(),
          .dh = nullptr,
          .dw = nullptr,
          .logits = workspace ? workspace.as<float>() : nullptr,
          .accumulate = false};
}

}  // namespace

void linear_cross_entropy(Queue& queue, const View& h, const View& w, const View& targets,
                          const View& scale, const View& losses, const View& dh, const View& dw,
                          const View& workspace, bool accumulate) {
  const Operands operands("linear_cross_entropy");
  const Dtype storage = check(operands, h, w, targets, losses, workspace);
  operands.check(scale, "scale", execution::accumulation(storage), {1});
  operands.same(dh, "dh", h);
  operands.check(dw, "dw", execution::accumulation(storage), {w.extent(0), w.extent(1)});
  run(
      queue, "linear_cross_entropy", storage,
      [accumulate, h = ColumnsAddress(all_columns(h)), w = ColumnsAddress(all_columns(w)),
       targets = Address(targets), scale = Address(scale), losses = Address(losses),
       dh = ColumnsAddress(all_columns(dh)), dw = ColumnsAddress(all_columns(dw)),
       room = Address(workspace)]<class S>() {
        using A = Accumulation<S>;
        linear_cross_entropy_ref(h.as<const S>(), w.as<const S>(), targets.as<const std::int32_t>(),
                                 scale.as<const A>(), losses.as<A>(), dh.as<S>(), dw.as<A>(),
                                 room.as<A>(), accumulate);
      },
      [&]<class S>(void* stream) {
        auto device = device_operands<S>(h, w, targets, losses, workspace);
        device.scale = scale.as<const float>();
        device.dh = dh.as<S>();
        device.dw = dw.as<float>();
        device.accumulate = accumulate;
        cross_entropy::enqueue(device, stream);
        return 0;
      });
}

void linear_cross_entropy_loss(Queue& queue, const View& h, const View& w, const View& targets,
                               const View& losses, const View& workspace, const View& hits) {
  const Operands operands("linear_cross_entropy_loss");
  const Dtype storage = check(operands, h, w, targets, losses, workspace);
  operands.check_optional(hits, "hits", execution::accumulation(storage), {h.extent(0)});
  run(
      queue, "linear_cross_entropy_loss", storage,
      [h = ColumnsAddress(all_columns(h)), w = ColumnsAddress(all_columns(w)),
       targets = Address(targets), losses = Address(losses), room = Address(workspace),
       hits = Address(hits)]<class S>() {
        using A = Accumulation<S>;
        linear_cross_entropy_loss_ref(h.as<const S>(), w.as<const S>(),
                                      targets.as<const std::int32_t>(), losses.as<A>(),
                                      room.as<A>(), hits.as<A>());
      },
      [&]<class S>(void* stream) {
        auto device = device_operands<S>(h, w, targets, losses, workspace);
        if (hits) device.hits = hits.as<float>();
        cross_entropy::enqueue(device, stream);
        return 0;
      });
}

std::size_t linear_cross_entropy_workspace_bytes(std::int64_t tokens, std::int64_t vocabulary,
                                                 std::int64_t /*width*/, Dtype storage) {
  const std::int64_t rows = std::max(cross_entropy_chunk(tokens, vocabulary),
                                     cross_entropy_device_chunk(tokens, vocabulary));
  return static_cast<std::size_t>(rows * vocabulary) *
         execution::size_bytes(execution::accumulation(storage));
}

namespace {

std::int64_t device_chunks(std::int64_t tokens, std::int64_t vocabulary) {
  const std::int64_t rows = cross_entropy_device_chunk(tokens, vocabulary);
  return rows > 0 ? (tokens + rows - 1) / rows : 1;
}

}  // namespace

Cost linear_cross_entropy_cost(std::int64_t tokens, std::int64_t vocabulary, std::int64_t width,
                               Dtype storage, bool accumulate) {
  const Dtype sums = execution::accumulation(storage);
  return {3 * product_flops(tokens, vocabulary, width),
          bytes(2 * tokens * width + vocabulary * width, storage) +
              passes(accumulate) * bytes(vocabulary * width, sums) + bytes(tokens, Dtype::int32) +
              bytes(tokens, sums),
          0, bytes(tokens * vocabulary, sums) + bytes(tokens * vocabulary, storage),
          static_cast<double>(4 * device_chunks(tokens, vocabulary) - 1)};
}

Cost linear_cross_entropy_loss_cost(std::int64_t tokens, std::int64_t vocabulary,
                                    std::int64_t width, Dtype storage) {
  return {product_flops(tokens, vocabulary, width),
          bytes((tokens + vocabulary) * width, storage) + bytes(tokens, Dtype::int32) +
              bytes(tokens, execution::accumulation(storage)),
          0, bytes(tokens * vocabulary, execution::accumulation(storage)),
          static_cast<double>(2 * device_chunks(tokens, vocabulary) - 1)};
}

}  // namespace stowage::kernels
