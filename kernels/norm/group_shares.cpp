#include "kernels/norm/group_shares.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/norm/norm_launch.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

void gated_sums(Queue& queue, const char* name, const View& dout, const View& y, const Columns& z,
                const View& w, const View& sums) {
  const Operands operands(name);
  const Dtype storage = operands.storage(y, "y");
  operands.rank(y, "y", 2);
  const std::int64_t n = y.extent(0), width = y.extent(1);
  operands.check(z, "z", storage, n, width);
  if (dout) operands.check(dout, "dout", storage, {n, width});
  if (dout) operands.check(w, "w", storage, {width});
  operands.check(sums, "sums", execution::accumulation(storage), {1, n});
  const auto bind = [=, dout = Address(dout), y = Address(y), z = ColumnsAddress(z), w = Address(w),
                     sums = Address(sums)]<class S>() {
    const Matrix<const S> gate = z.as<const S>();
    return GatedSums<S>{.rows = n,
                        .width = width,
                        .dout = dout.as<const S>(),
                        .y = y.as<const S>(),
                        .z = gate.row(0),
                        .z_stride = gate.stride,
                        .w = w.as<const S>(),
                        .sums = sums.as<Accumulation<S>>()};
  };
  run(
      queue, name, storage, [bind]<class S>() { gated_sums_ref(bind.template operator()<S>()); },
      [&]<class S>(void* stream) { return norm::launch(bind.template operator()<S>(), stream); });
}

}  // namespace

void gated_squares(Queue& queue, const View& y, const Columns& z, const View& squares) {
  gated_sums(queue, "gated_squares", {}, y, z, {}, squares);
}

void gated_projections(Queue& queue, const View& dout, const View& y, const Columns& z,
                       const View& w, const View& projections) {
  gated_sums(queue, "gated_projections", dout, y, z, w, projections);
}

Cost gated_squares_cost(std::int64_t rows, std::int64_t width, Dtype storage) {
  return {6.0 * static_cast<double>(rows * width),
          2 * bytes(rows * width, storage) + bytes(rows, execution::accumulation(storage))};
}

Cost gated_projections_cost(std::int64_t rows, std::int64_t width, Dtype storage) {
  return {7.0 * static_cast<double>(rows * width),
          3 * bytes(rows * width, storage) + bytes(width, storage) +
              bytes(rows, execution::accumulation(storage))};
}

}  // namespace stowage::kernels
