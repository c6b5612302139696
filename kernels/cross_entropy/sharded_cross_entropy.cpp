#include "kernels/cross_entropy/sharded_cross_entropy.hpp"

#include "kernels/cost.hpp"
#include "kernels/cross_entropy/row_chunk.hpp"
#include "kernels/cross_entropy/sharded_cross_entropy_cuda.hpp"
#include "kernels/cross_entropy/sharded_cross_entropy_ref.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

struct Extents {
  std::int64_t rows, vocabulary, width;
};

Extents check(const Operands& operands, const View& h, const View& w, const View& targets,
              const View& logits) {
  const Dtype storage = operands.storage(w, "w");
  operands.rank(w, "w", 2);
  operands.rank(logits, "logits", 2);
  const Extents e{logits.extent(0), w.extent(0), w.extent(1)};
  operands.check(logits, "logits", execution::accumulation(storage), {e.rows, e.vocabulary});
  operands.require(h.dtype() == storage && h.buffer().elements() == e.rows * e.width,
                   "h has not as many rows as logits");
  operands.require(targets.dtype() == Dtype::int32 && targets.buffer().elements() == e.rows,
                   "targets has not as many rows as logits");
  return e;
}

template <class T>
Matrix<T> rows_of(const Address& address, std::int64_t rows, std::int64_t columns) {
  return {address.as<T>(), rows, columns, columns};
}

}  // namespace

void sharded_logits(Queue& queue, const View& h, const View& w, const View& targets,
                    std::int64_t first, const View& logits, const View& stats) {
  const Operands operands("sharded_logits");
  const Extents e = check(operands, h, w, targets, logits);
  operands.require(stats.dtype() == logits.dtype() && stats.buffer().elements() == 3 * e.rows,
                   "stats has not three numbers a row");
  run(
      queue, "sharded_logits", w.dtype(),
      [=, h = Address(h), w = Address(w), targets = Address(targets), logits = Address(logits),
       stats = Address(stats)]<class S>() {
        using A = Accumulation<S>;
        sharded_logits_ref(rows_of<const S>(h, e.rows, e.width),
                           rows_of<const S>(w, e.vocabulary, e.width),
                           targets.as<const std::int32_t>(), first,
                           rows_of<A>(logits, e.rows, e.vocabulary), stats.as<A>());
      },
      [&]<class S>(void* stream) {
        cross_entropy::enqueue_logits<S>({.rows = e.rows,
                                          .vocabulary = e.vocabulary,
                                          .width = e.width,
                                          .first = first,
                                          .h = h.as<const S>(),
                                          .w = w.as<const S>(),
                                          .targets = targets.as<const std::int32_t>(),
                                          .logits = logits.as<float>(),
                                          .stats = stats.as<float>()},
                                         stream);
        return 0;
      });
}

void sharded_cross_entropy(Queue& queue, const ShardedCrossEntropyOperands& o, std::int64_t first,
                           bool accumulate) {
  const Operands operands("sharded_cross_entropy");
  const Extents e = check(operands, o.h, o.w, o.targets, o.logits);
  const std::int64_t ranks = o.stats.buffer().elements() / std::max<std::int64_t>(3 * e.rows, 1);
  operands.require(ranks * 3 * e.rows == o.stats.buffer().elements(),
                   "stats has not three numbers a row and rank");
  operands.require(o.losses.dtype() == o.logits.dtype() && o.losses.buffer().elements() == e.rows,
                   "losses has not as many rows as logits");
  operands.check_optional(o.hits, "hits", o.logits.dtype(), {e.rows});
  if (o.scale) {
    operands.require(o.dh.dtype() == o.h.dtype() && o.dh.buffer().elements() == e.rows * e.width,
                     "dh is not as h");
    operands.check(o.dw, "dw", o.logits.dtype(), {e.vocabulary, e.width});
  }
  run(
      queue, "sharded_cross_entropy", o.w.dtype(),
      [=, h = Address(o.h), w = Address(o.w), targets = Address(o.targets),
       logits = Address(o.logits), stats = Address(o.stats), losses = Address(o.losses),
       hits = Address(o.hits), scale = Address(o.scale), dh = Address(o.dh),
       dw = Address(o.dw)]<class S>() {
        using A = Accumulation<S>;
        const Matrix<A> gradient = rows_of<A>(logits, e.rows, e.vocabulary);
        lose_parts_ref(gradient, targets.as<const std::int32_t>(), first, stats.as<const A>(),
                       static_cast<int>(ranks), scale.as<const A>(), losses.as<A>(), hits.as<A>());
        if (scale.as<const A>() == nullptr) return;
        sharded_gradients_ref<S>(gradient, rows_of<const S>(h, e.rows, e.width),
                                 rows_of<const S>(w, e.vocabulary, e.width),
                                 rows_of<S>(dh, e.rows, e.width),
                                 rows_of<A>(dw, e.vocabulary, e.width), accumulate);
      },
      [&]<class S>(void* stream) {
        cross_entropy::enqueue_gradients<S>({.rows = e.rows,
                                             .vocabulary = e.vocabulary,
                                             .width = e.width,
                                             .first = first,
                                             .h = o.h.as<const S>(),
                                             .w = o.w.as<const S>(),
                                             .targets = o.targets.as<const std::int32_t>(),
                                             .logits = o.logits.as<float>(),
                                             .stats = o.stats.as<float>(),
                                             .ranks = static_cast<int>(ranks),
                                             .losses = o.losses.as<float>(),
                                             .scale = o.scale ? o.scale.as<const float>() : nullptr,
                                             .dh = o.scale ? o.dh.as<S>() : nullptr,
                                             .dw = o.scale ? o.dw.as<float>() : nullptr,
                                             .accumulate = accumulate,
                                             .hits = o.hits ? o.hits.as<float>() : nullptr},
                                            stream);
        return 0;
      });
}

Cost sharded_logits_cost(std::int64_t rows, std::int64_t vocabulary, std::int64_t width,
                         Dtype storage) {
  const Dtype sums = execution::accumulation(storage);
  return {product_flops(rows, vocabulary, width),
          bytes((rows + vocabulary) * width, storage) + bytes(rows * vocabulary, sums), 0,
          bytes(rows * vocabulary, sums), 1};
}

Cost sharded_cross_entropy_cost(std::int64_t rows, std::int64_t vocabulary, std::int64_t width,
                                Dtype storage, bool gradients, bool accumulate) {
  const Dtype sums = execution::accumulation(storage);
  if (!gradients) return {0, bytes(4 * rows, sums)};
  return {2 * product_flops(rows, vocabulary, width),
          bytes(2 * rows * width + vocabulary * width, storage) +
              passes(accumulate) * bytes(vocabulary * width, sums),
          0, bytes(rows * vocabulary, sums) + bytes(rows * vocabulary, storage), 2};
}

std::int64_t sharded_cross_entropy_chunk(std::int64_t rows, std::int64_t vocabulary) {
  return cross_entropy_device_chunk(rows, vocabulary);
}

}  // namespace stowage::kernels
