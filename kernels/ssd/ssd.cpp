#include "kernels/ssd/ssd.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/ssd/ssd_chunks.hpp"
#include "kernels/ssd/ssd_cuda_dispatch.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

// A state at an end of the sequence, where it is asked for.
void check_state(const Operands& operands, const SsdShape& shape, Dtype storage, const View& state,
                 std::string_view operand) {
  operands.check_optional(state, operand, execution::accumulation(storage),
                          {shape.heads, shape.head_dim, shape.state});
}

// The addresses of a scan's inputs.
class Inputs {
 public:
  // Checks them too; tokens are the rows of y or dy.
  Inputs(const Operands& operands, Dtype storage, std::int64_t n, const SsdShape& shape,
         const SsdInputOperands& v, const View& initial_state)
      : x_(check(operands, v.x, "x", storage, n, shape.heads * shape.head_dim)),
        dt_(check(operands, v.dt, "dt", storage, n, shape.heads)),
        b_(check(operands, v.b, "b", storage, n, shape.groups * shape.state)),
        c_(check(operands, v.c, "c", storage, n, shape.groups * shape.state)),
        a_log_(v.a_log),
        d_(v.d),
        dt_bias_(v.dt_bias),
        seq_idx_(v.seq_idx),
        initial_state_(initial_state) {
    check_state(operands, shape, storage, initial_state, "initial_state");
    operands.check(v.a_log, "a_log", storage, {shape.heads});
    operands.check(v.d, "d", storage, {shape.heads});
    operands.check(v.dt_bias, "dt_bias", storage, {shape.heads});
    operands.check(v.seq_idx, "seq_idx", Dtype::int32, {n});
  }

  template <class S>
  SsdInputs<S> as() const {
    return {x_.as<const S>(),
            dt_.as<const S>(),
            b_.as<const S>(),
            c_.as<const S>(),
            a_log_.as<const S>(),
            d_.as<const S>(),
            dt_bias_.as<const S>(),
            seq_idx_.as<const std::int32_t>(),
            initial_state_.as<const Accumulation<S>>()};
  }

  static const Columns& check(const Operands& operands, const Columns& columns,
                              std::string_view operand, Dtype storage, std::int64_t rows,
                              std::int64_t count) {
    operands.check(columns, operand, storage, rows, count);
    return columns;
  }

 private:
  ColumnsAddress x_, dt_, b_, c_;
  Address a_log_, d_, dt_bias_, seq_idx_, initial_state_;
};

// The same for their gradients.
class Gradients {
 public:
  Gradients(const Operands& operands, Dtype storage, std::int64_t n, const SsdShape& shape,
            const SsdBackwardOperands& v, const SsdEndGradients& ends)
      : dx_(Inputs::check(operands, v.dx, "dx", storage, n, shape.heads * shape.head_dim)),
        ddt_(Inputs::check(operands, v.ddt, "ddt", storage, n, shape.heads)),
        db_(Inputs::check(operands, v.db, "db", storage, n, shape.groups * shape.state)),
        dc_(Inputs::check(operands, v.dc, "dc", storage, n, shape.groups * shape.state)),
        da_log_(v.da_log),
        dd_(v.dd),
        ddt_bias_(v.ddt_bias),
        dfinal_state_(ends.dfinal_state),
        dinitial_state_(ends.dinitial_state) {
    check_state(operands, shape, storage, ends.dfinal_state, "dfinal_state");
    check_state(operands, shape, storage, ends.dinitial_state, "dinitial_state");
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

// The number of tokens, from y or dy (n, H*P).
std::int64_t check_shape(const Operands& operands, const SsdShape& shape, const View& y,
                         std::string_view operand) {
  operands.require(shape.groups > 0 && shape.heads % shape.groups == 0,
                   "heads is not a multiple of groups");
  operands.require(shape.chunk > 0, "chunk is not positive");
  operands.require(shape.dt_min <= shape.dt_max, "dt_min is above dt_max");
  operands.rank(y, operand, 2);
  operands.check(y, operand, y.dtype(), {y.extent(0), shape.heads * shape.head_dim});
  return y.extent(0);
}

std::size_t bytes_of(std::int64_t elements, Dtype storage) {
  return static_cast<std::size_t>(elements) *
         execution::size_bytes(execution::accumulation(storage));
}

}  // namespace

void ssd_forward(Queue& queue, const SsdShape& shape, const SsdForwardOperands& views,
                 const SsdEnds& ends) {
  const Operands operands("ssd_forward");
  const Dtype storage = operands.storage(views.y, "y");
  const std::int64_t n = check_shape(operands, shape, views.y, "y");
  const Inputs inputs(operands, storage, n, shape, views.inputs, ends.initial_state);
  check_state(operands, shape, storage, ends.final_state, "final_state");
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
  const std::int64_t n = check_shape(operands, shape, views.dy, "dy");
  const Inputs inputs(operands, storage, n, shape, views.inputs, ends.initial_state);
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
#if STOWAGE_HAVE_CUDA
  return std::max(host, detail::ssd_cuda_forward_bytes(shape, tokens, storage));
#else
  return host;
#endif
}

std::size_t ssd_backward_workspace_bytes(const SsdShape& shape, std::int64_t tokens,
                                         Dtype storage) {
  const detail::SsdSizes sizes(shape, tokens);
  const std::size_t host = bytes_of(detail::SsdWorkspace<float>::backward_elements(sizes), storage);
#if STOWAGE_HAVE_CUDA
  return std::max(host, detail::ssd_cuda_backward_bytes(shape, tokens, storage));
#else
  return host;
#endif
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
