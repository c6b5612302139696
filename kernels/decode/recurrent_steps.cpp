#include "kernels/cost.hpp"
#include "kernels/decode/conv1d_step.hpp"
#include "kernels/decode/decode_launch.hpp"
#include "kernels/decode/gated_delta_step.hpp"
#include "kernels/decode/ssd_step.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

template <class S>
int Conv1dStep::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return decode::launch(decode::Convolution<S>{.sequences = sequences,
                                               .channels = static_cast<int>(channels),
                                               .width = static_cast<int>(width),
                                               .x = o.x.data,
                                               .x_stride = o.x.stride,
                                               .w = o.w,
                                               .b = o.b,
                                               .positions = o.positions,
                                               .rows = o.rows,
                                               .y = o.y},
                        stream);
}

Cost Conv1dStep::cost() const {
  const std::int64_t rows = sequences * channels;
  return {(2.0 * static_cast<double>(width) + 5) * static_cast<double>(rows),
          bytes((2 * (width - 1) + 2) * rows, storage) +
              bytes((width + (biased ? 1 : 0)) * channels, storage)};
}

template <class S>
int SsdStep::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return decode::launch(decode::Scan<S>{.sequences = sequences,
                                        .heads = static_cast<int>(shape.heads),
                                        .head_dim = static_cast<int>(shape.head_dim),
                                        .groups = static_cast<int>(shape.groups),
                                        .state_dim = static_cast<int>(shape.state),
                                        .dt_min = static_cast<float>(shape.dt_min),
                                        .dt_max = static_cast<float>(shape.dt_max),
                                        .xbc = o.xbc.data,
                                        .dt = o.dt.data,
                                        .xbc_stride = o.xbc.stride,
                                        .dt_stride = o.dt.stride,
                                        .a_log = o.a_log,
                                        .d = o.d,
                                        .dt_bias = o.dt_bias,
                                        .positions = o.positions,
                                        .state = o.state,
                                        .y = o.y},
                        stream);
}

// Flops: decay, what is added, and the product with C, for each element of a state.
Cost SsdStep::cost() const {
  const std::int64_t states = sequences * shape.inner() * shape.state;
  return {6.0 * static_cast<double>(states),
          2 * bytes(states, execution::accumulation(storage)) +
              bytes(sequences * (shape.channels() + shape.heads + shape.inner()), storage)};
}

template <class S>
int GatedDeltaStep::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return decode::launch(decode::DeltaRule<S>{.sequences = sequences,
                                             .key_heads = static_cast<int>(shape.key_heads),
                                             .value_heads = static_cast<int>(shape.value_heads),
                                             .key_dim = static_cast<int>(shape.key_dim),
                                             .value_dim = static_cast<int>(shape.value_dim),
                                             .epsilon = static_cast<float>(kGatedDeltaEpsilon),
                                             .qkv = o.qkv.data,
                                             .ba = o.ba.data,
                                             .a = o.a,
                                             .qkv_stride = o.qkv.stride,
                                             .ba_stride = o.ba.stride,
                                             .a_log = o.a_log,
                                             .dt_bias = o.dt_bias,
                                             .positions = o.positions,
                                             .state = o.state,
                                             .y = o.y},
                        stream);
}

// Flops: decay and the products with k, u and q, for each element of a state.
Cost GatedDeltaStep::cost() const {
  const std::int64_t states = sequences * shape.values() * shape.key_dim;
  return {7.0 * static_cast<double>(states),
          2 * bytes(states, execution::accumulation(storage)) +
              bytes(sequences *
                        (shape.channels() + shape.value_heads + shape.decays() + shape.values()),
                    storage)};
}

STOWAGE_OPERATOR_RUN(Conv1dStep)
STOWAGE_OPERATOR_RUN(SsdStep)
STOWAGE_OPERATOR_RUN(GatedDeltaStep)

}  // namespace stowage::kernels
