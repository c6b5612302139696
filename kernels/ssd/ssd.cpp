#include "kernels/ssd/ssd.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/ssd/ssd_chunks.hpp"
#include "kernels/ssd/ssd_cuda_dispatch.hpp"
#include "kernels/ssd/ssd_layout.hpp"
#include "kernels/ssd/ssd_operands.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

// The same for their gradients.
class Gradients {
 public:
  Gradients(const Operands& operands, Dtype storage, std::int64_t n, const SsdShape& shape,
            const SsdBackwardOperands& v, const SsdEndGradients& ends)
      : dx_(detail::SsdInputAddresses::check(operands, v.dx, "dx", storage, n,
                                             shape.heads * shape.head_dim)),
        ddt_(detail::SsdInputAddresses::check(operands, v.ddt, "ddt", storage, n, shape.heads)),
        db_(detail::SsdInputAddresses::check(operands, v.db, "db", storage, n,
                                             shape.groups * shape.state)),
        dc_(detail::SsdInputAddresses::check(operands, v.dc, "dc", storage, n,
                                             shape.groups * shape.state)),
        da_log_(v.da_log),
        dd_(v.dd),
        ddt_bias_(v.ddt_bias),
        dfinal_state_(ends.dfinal_state),
        dinitial_state_(ends.dinitial_state) {
    detail::check_state(operands, shape, storage, ends.dfinal_state, "dfinal_state");
    detail::check_state(operands, shape, storage, ends.dinitial_state, "dinitial_state");
    const Dtype sums = execution::accumulation(storage);
    operands.check(v.da_log, "da_log", sums, {shape.heads});
    operands.check(v.dd, "dd", sums, {shape.heads});
    operands.check(v.ddt_bias, "ddt_bias", sums, {shape.heads});
  }

  template <class S>
  SsdGradients<S> as() const {
    using A = Accumulation<S>;
    return {dx_.as<S>(),
            ddt_.as<S>(),
            db_.as<S>(),
            dc_.as<S>(),
            da_log_.as<A>(),
            dd_.as<A>(),
            ddt_bias_.as<A>(),
            dfinal_state_.as<const A>(),
            dinitial_state_.as<A>()};
  }

 private:
  ColumnsAddress dx_, ddt_, db_, dc_;
  Address da_log_, dd_, ddt_bias_, dfinal_state_, dinitial_state_;
};

std::size_t bytes_of(std::int64_t elements, Dtype storage) {
  return static_cast<std::size_t>(elements) *
         execution::size_bytes(execution::accumulation(storage));
}

}  // namespace

void ssd_forward(Queue& queue, const SsdShape& shape, const SsdForwardOperands& views,
                 const SsdEnds& ends) {
  const Operands operands("ssd_forward");
  const Dtype storage = operands.storage(views.y, "y");
  const std::int64_t n = detail::check_ssd_shape(operands, shape, views.y, "y");
  const detail::SsdInputAddresses inputs(operands, storage, n, shape, views.inputs,
                                         ends.initial_state);
  detail::check_state(operands, shape, storage, ends.final_state, "final_state");
  operands.check_optional(ends.total_decay, "total_decay", execution::accumulation(storage),
                          {shape.heads});
  operands.workspace(views.workspace, ssd_forward_workspace_bytes(shape, n, storage));
  const Address to(views.y), room(views.workspace), final_state(ends.final_state),
      decay(ends.total_decay);
  run(
      queue, "ssd_forward", storage,
      [=]<class S>() {
        using A = Accumulation<S>;
        ssd_forward_ref(shape, inputs.as<S>(), to.as<S>(), room.as<A>(),
                        {final_state.as<A>(), decay.as<A>()});
      },
      [&]<class S>(void* stream) {
        using A = Accumulation<S>;
        return detail::ssd_forward_cuda(shape, inputs.as<S>(), to.as<S>(), room.as<void>(),
                                        {final_state.as<A>(), decay.as<A>()}, stream);
      });
}

void ssd_backward(Queue& queue, const SsdShape& shape, const SsdBackwardOperands& views,
                  bool accumulate, const SsdEndGradients& ends) {
  const Operands operands("ssd_backward");
  const Dtype storage = operands.storage(views.dy, "dy");
  const std::int64_t n = detail::check_ssd_shape(operands, shape, views.dy, "dy");
  const detail::SsdInputAddresses inputs(operands, storage, n, shape, views.inputs,
                                         ends.initial_state);
  const Gradients gradients(operands, storage, n, shape, views, ends);
  operands.workspace(views.workspace, ssd_backward_workspace_bytes(shape, n, storage));
  const Address from(views.dy), room(views.workspace);
  run(
      queue, "ssd_backward", storage,
      [=]<class S>() {
        ssd_backward_ref(shape, inputs.as<S>(), from.as<const S>(), gradients.as<S>(),
                         room.as<Accumulation<S>>(), accumulate);
      },
      [&]<class S>(void* stream) {
        return detail::ssd_backward_cuda(shape, inputs.as<S>(), from.as<const S>(),
                                         gradients.as<S>(), room.as<void>(), accumulate, stream);
      });
}

std::size_t ssd_forward_workspace_bytes(const SsdShape& shape, std::int64_t tokens, Dtype storage) {
  const detail::SsdSizes sizes(shape, tokens);
  const std::size_t host = bytes_of(detail::SsdWorkspace<float>::forward_elements(sizes), storage);
  return std::max(host, detail::ssd_cuda_forward_bytes(shape, tokens, storage));
}

std::size_t ssd_backward_workspace_bytes(const SsdShape& shape, std::int64_t tokens,
                                         Dtype storage) {
  const detail::SsdSizes sizes(shape, tokens);
  const std::size_t host = bytes_of(detail::SsdWorkspace<float>::backward_elements(sizes), storage);
  return std::max(host, detail::ssd_cuda_backward_bytes(shape, tokens, storage));
}

// With one chunk length for every kernel, or a larger one would seem to do more work.
constexpr std::int64_t kCostChunk = 128;

Cost ssd_forward_cost(const SsdShape& shape, std::int64_t tokens, Dtype storage) {
  const std::int64_t inner = shape.heads * shape.head_dim, shared = shape.groups * shape.state;
  const double flops = 2.0 * static_cast<double>(kCostChunk * (inner + shared)) +
                       4.0 * static_cast<double>(inner * shape.state);
  return {flops * static_cast<double>(tokens),
          bytes(tokens * (2 * inner + 2 * shared + shape.heads), storage) +
              bytes(3 * shape.heads, storage) + bytes(tokens, Dtype::int32)};
}

// Including the recomputation of the states (2 N P per head).
Cost ssd_backward_cost(const SsdShape& shape, std::int64_t tokens, Dtype storage) {
  const std::int64_t inner = shape.heads * shape.head_dim, shared = shape.groups * shape.state;
  const double flops = static_cast<double>(kCostChunk * (4 * inner + 6 * shared)) +
                       10.0 * static_cast<double>(inner * shape.state);
  return {flops * static_cast<double>(tokens),
          bytes(tokens * (3 * inner + 4 * shared + 2 * shape.heads), storage) +
              bytes(3 * shape.heads, storage) +
              bytes(3 * shape.heads, execution::accumulation(storage)) +
              bytes(tokens, Dtype::int32)};
}

}  // namespace stowage::kernels
