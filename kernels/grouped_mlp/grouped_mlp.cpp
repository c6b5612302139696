#include "kernels/grouped_mlp/grouped_mlp.hpp"

#include "kernels/cost.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/grouped_mlp/grouped_layout.hpp"
#include "kernels/grouped_mlp/grouped_linear.hpp"
#include "kernels/grouped_mlp/grouped_mlp_cuda.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

// Extents: x and dy (rows, D), a (rows, F), h (rows, H).
struct Sizes {
  std::int64_t rows, experts, width, columns, hidden;
};

Sizes check_sizes(const Operands& operands, Activation kind, const View& a, const View& wide,
                  std::string_view wide_name, const View& h, const View& offsets,
                  const View& row_weight) {
  const Dtype storage = operands.storage(a, "a");
  operands.rank(a, "a", 2);
  operands.rank(wide, wide_name, 2);
  operands.rank(offsets, "offsets", 1);
  const Sizes s{a.extent(0), offsets.extent(0) - 1, wide.extent(1), a.extent(1),
                activation_width(kind, a.extent(1))};
  operands.check(wide, wide_name, storage, {s.rows, s.width});
  operands.check(h, "h", storage, {s.rows, s.hidden});
  operands.check(offsets, "offsets", Dtype::int32, {s.experts + 1});
  operands.check_optional(row_weight, "row_weight", execution::accumulation(storage), {s.rows});
  return s;
}

}  // namespace

void grouped_fc1_forward(Queue& queue, Activation kind, const View& x, const View& w1,
                         const View& offsets, const View& row_weight, const View& h,
                         const View& a) {
  constexpr std::string_view kOp = "grouped_fc1_forward";
  const Operands operands(kOp);
  const Sizes s = check_sizes(operands, kind, a, x, "x", h, offsets, row_weight);
  const Dtype storage = a.dtype();
  operands.check(w1, "w1", storage, {s.experts, s.hidden, s.width});
  const Address from(x), weight(w1), places(offsets), scale(row_weight), before(h), after(a);
  const auto reference = [=]<class S>() {
    grouped_fc1_forward_ref(kind, s.rows, s.experts, s.columns, s.width, from.as<const S>(),
                            weight.as<const S>(), places.as<const std::int32_t>(),
                            scale.as<const Accumulation<S>>(), before.as<S>(), after.as<S>());
  };
  run(queue, storage, reference, [&]([[maybe_unused]] void* stream) {
    if constexpr (STOWAGE_HAVE_CUDA) {
      grouped_cuda_fc1_forward({s.rows, s.experts, s.hidden, s.width, operands.is_bf16(storage)},
                               kind, from.as<const void>(), weight.as<const void>(),
                               places.as<const std::int32_t>(), scale.as<const float>(),
                               before.as<void>(), after.as<void>(),
                               static_cast<cudaStream_t>(stream));
    } else {
      throw_no_cuda(kOp);
    }
  });
}

void grouped_fc2_backward_input(Queue& queue, Activation kind,
                                const GroupedFc2BackwardOperands& views) {
  constexpr std::string_view kOp = "grouped_fc2_backward_input";
  const Operands operands(kOp);
  const Sizes s = check_sizes(operands, kind, views.a, views.dy, "dy", views.h, views.offsets,
                              views.row_weight);
  const Dtype storage = views.a.dtype(), sums = execution::accumulation(storage);
  operands.check(views.w2, "w2", storage, {s.experts, s.width, s.columns});
  operands.same(views.dh, "dh", views.h);
  operands.check_optional(views.drow_weight, "drow_weight", sums, {s.rows});
  operands.require(static_cast<bool>(views.row_weight) == static_cast<bool>(views.drow_weight),
                   "one of row_weight and drow_weight is absent, the other is not");
  operands.workspace(views.workspace,
                     grouped_fc2_backward_input_workspace_bytes(s.rows, s.columns, storage));
  const Address from(views.dy), weight(views.w2), places(views.offsets), scale(views.row_weight);
  const Address before(views.h), gradient(views.dh), after(views.a), dscale(views.drow_weight);
  const Address room(views.workspace);
  const auto reference = [=]<class S>() {
    grouped_fc2_backward_input_ref(kind, s.rows, s.experts, s.columns, s.width, from.as<const S>(),
                                   weight.as<const S>(), places.as<const std::int32_t>(),
                                   scale.as<const Accumulation<S>>(), before.as<const S>(),
                                   gradient.as<S>(), after.as<S>(), dscale.as<Accumulation<S>>());
  };
  run(queue, storage, reference, [&]([[maybe_unused]] void* stream) {
    if constexpr (STOWAGE_HAVE_CUDA) {
      grouped_cuda_fc2_backward_input(
          {s.rows, s.experts, s.width, s.columns, operands.is_bf16(storage)}, kind,
          {.dy = from.as<const void>(),
           .w = weight.as<const void>(),
           .offsets = places.as<const std::int32_t>(),
           .row_weight = scale.as<const float>(),
           .h = before.as<const void>(),
           .dh = gradient.as<void>(),
           .a = after.as<void>(),
           .drow_weight = dscale.as<float>(),
           .workspace = room.as<void>()},
          static_cast<cudaStream_t>(stream));
    } else {
      throw_no_cuda(kOp);
    }
  });
}

std::size_t grouped_fc2_backward_input_workspace_bytes(std::int64_t rows, std::int64_t columns,
                                                       Dtype storage) {
  return storage == Dtype::bf16 ? grouped_cuda_fc2_workspace_bytes(rows, columns) : 0;
}

// The activation reads h from the product, and writes a.
Cost grouped_fc1_forward_cost(Activation kind, std::int64_t rows, std::int64_t experts,
                              std::int64_t columns, std::int64_t width, Dtype storage) {
  const std::int64_t hidden = activation_width(kind, columns);
  return grouped_linear_forward_cost(rows, experts, hidden, width, storage) +
         Cost{ActivationForward{.kind = kind, .rows = rows, .columns = columns, .storage = storage}
                  .cost()
                  .flops,
              bytes(rows * columns, storage)};
}

// What the product would write is a here; the activation reads h and writes its gradient.
Cost grouped_fc2_backward_input_cost(Activation kind, std::int64_t rows, std::int64_t experts,
                                     std::int64_t columns, std::int64_t width, Dtype storage) {
  const std::int64_t hidden = activation_width(kind, columns);
  return grouped_linear_backward_input_cost(rows, experts, width, columns, storage, false) +
         Cost{ActivationBackward{.kind = kind, .rows = rows, .columns = columns, .storage = storage}
                      .cost()
                      .flops +
                  ActivationForward{
                      .kind = kind, .rows = rows, .columns = columns, .storage = storage}
                      .cost()
                      .flops,
              2 * bytes(rows * hidden, storage)};
}

}  // namespace stowage::kernels
