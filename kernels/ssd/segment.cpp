#include "kernels/ssd/segment.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/ssd/segment_chain.hpp"
#include "kernels/ssd/ssd_cuda_dispatch.hpp"
#include "kernels/ssd/ssd_operands.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

std::int64_t state_elements(const SsdShape& shape) {
  return shape.heads * shape.head_dim * shape.state;
}

// Any shape with as many elements: a part of what the ranks gather has one dimension.
void check_elements(const Operands& operands, const View& view, Dtype dtype, std::int64_t elements,
                    std::string_view what) {
  operands.require(
      static_cast<bool>(view) && view.dtype() == dtype && view.buffer().elements() == elements,
      what);
}

template <bool kReverse>
void enter(std::string_view op, Queue& queue, const SsdShape& shape, const View& all,
           const View& seq_idx, std::int64_t segments, std::int64_t segment, const View& state) {
  const Operands operands(op);
  const Dtype sums = operands.storage(state, "state");
  operands.check(state, "state", sums, {shape.heads, shape.head_dim, shape.state});
  check_elements(operands, all, sums, segments * ssd_segment_elements(shape),
                 "`all` is not one state and its decays for each segment");
  operands.rank(seq_idx, "seq_idx", 1);
  const std::int64_t n = seq_idx.extent(0);
  operands.check(seq_idx, "seq_idx", Dtype::int32, {n});
  operands.require(segments > 0 && n % segments == 0, "the tokens do not divide into segments");
  operands.require(segment >= 0 && segment < segments, "there is no such segment");
  operands.require(sums != Dtype::bf16, "states are of an accumulation dtype");
  execution::with_accumulation_type(sums, [&]<class A>() {
    execution::parallel_for(
        queue, state_elements(shape),
        detail::EnterSegment<A, kReverse>{
            all.as<const A>(), seq_idx.as<const std::int32_t>(), state.as<A>(), segments, segment,
            n / segments, state_elements(shape), shape.head_dim * shape.state, shape.heads});
  });
}

}  // namespace

std::int64_t ssd_segment_elements(const SsdShape& shape) {
  return state_elements(shape) + shape.heads;
}

void ssd_segment_state(Queue& queue, const SsdShape& shape, const SsdInputOperands& views,
                       const View& to) {
  const Operands operands("ssd_segment_state");
  const Dtype storage = operands.storage(views.x.view, "x");
  const std::int64_t n = views.x.rows();
  const detail::SsdInputAddresses inputs(operands, storage, n, shape, views, {});
  check_elements(operands, to, execution::accumulation(storage), ssd_segment_elements(shape),
                 "`to` is not a state and its decays");
  const Address left(to);
  run(
      queue, "ssd_segment_state", storage,
      [=]<class S>() { ssd_segment_state_ref(shape, inputs.as<S>(), left.as<Accumulation<S>>()); },
      [&]<class S>(void* stream) {
        return detail::ssd_segment_cuda<S>(shape, inputs.as<S>(), nullptr, left.as<float>(),
                                           stream);
      });
}

void ssd_segment_adjoint(Queue& queue, const SsdShape& shape, const View& dy,
                         const SsdInputOperands& views, const View& to) {
  const Operands operands("ssd_segment_adjoint");
  const Dtype storage = operands.storage(dy, "dy");
  const std::int64_t n = detail::check_ssd_shape(operands, shape, dy, "dy");
  const detail::SsdInputAddresses inputs(operands, storage, n, shape, views, {});
  check_elements(operands, to, execution::accumulation(storage), ssd_segment_elements(shape),
                 "`to` is not a state and its decays");
  const Address from(dy), left(to);
  run(
      queue, "ssd_segment_adjoint", storage,
      [=]<class S>() {
        ssd_segment_adjoint_ref(shape, inputs.as<S>(), from.as<const S>(),
                                left.as<Accumulation<S>>());
      },
      [&]<class S>(void* stream) {
        return detail::ssd_segment_cuda<S>(shape, inputs.as<S>(), from.as<const S>(),
                                           left.as<float>(), stream);
      });
}

void ssd_enter_state(Queue& queue, const SsdShape& shape, const View& all, const View& seq_idx,
                     std::int64_t segments, std::int64_t segment, const View& state) {
  enter<false>("ssd_enter_state", queue, shape, all, seq_idx, segments, segment, state);
}

void ssd_enter_adjoint(Queue& queue, const SsdShape& shape, const View& all, const View& seq_idx,
                       std::int64_t segments, std::int64_t segment, const View& state) {
  enter<true>("ssd_enter_adjoint", queue, shape, all, seq_idx, segments, segment, state);
}

// One product (P, n) (n, N) a head.
Cost ssd_segment_cost(const SsdShape& shape, std::int64_t tokens, Dtype storage) {
  const std::int64_t inner = shape.heads * shape.head_dim, shared = shape.groups * shape.state;
  return {2.0 * static_cast<double>(inner * shape.state) * static_cast<double>(tokens),
          bytes(tokens * (inner + shared + shape.heads), storage) + bytes(tokens, Dtype::int32) +
              bytes(ssd_segment_elements(shape), execution::accumulation(storage))};
}

Cost ssd_enter_cost(const SsdShape& shape, std::int64_t segments, Dtype storage) {
  const std::int64_t elements = ssd_segment_elements(shape);
  return {2.0 * static_cast<double>(segments * elements),
          bytes((segments + 1) * elements, execution::accumulation(storage))};
}

}  // namespace stowage::kernels
