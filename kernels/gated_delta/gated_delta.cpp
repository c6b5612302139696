#include "kernels/gated_delta/gated_delta.hpp"

#include <algorithm>
#include <optional>

#include "kernels/cost.hpp"
#include "kernels/gated_delta/gated_delta_launch.hpp"
#include "kernels/gated_delta/gated_delta_wgmma.hpp"
#include "kernels/gated_delta/segment.hpp"
#include "kernels/gated_delta/segment_step.hpp"
#include "kernels/launch.hpp"
#include "kernels/machine.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;
using gated_delta::Arrays;

namespace {

static_assert(kGatedDeltaChunk == gated_delta::kC);

template <class S>
Arrays<S, Accumulation<S>> sizes(const GatedDeltaShape& shape, std::int64_t tokens) {
  Arrays<S, Accumulation<S>> p;
  p.tokens = static_cast<int>(tokens);
  p.key_heads = static_cast<int>(shape.key_heads);
  p.value_heads = static_cast<int>(shape.value_heads);
  p.key_dim = static_cast<int>(shape.key_dim);
  p.value_dim = static_cast<int>(shape.value_dim);
  p.channel_decay = shape.channel_decay;
  return p;
}

template <class S, class Op>
Arrays<S, Accumulation<S>> arrays_of(const Op& op, const GatedDeltaInputs<Pointers<S>>& in,
                                     void* workspace, bool whole = false) {
  Arrays<S, Accumulation<S>> p = sizes<S>(op.shape, op.tokens);
  p.qkv = in.qkv.data;
  p.qkv_stride = in.qkv.stride;
  p.ba = in.ba.data;
  p.ba_stride = in.ba.stride;
  p.a = in.a;
  p.a_log = in.a_log;
  p.dt_bias = in.dt_bias;
  p.seq_idx = in.seq_idx;
  p.initial_state = in.initial_state;
  p.place(workspace, whole);
  return p;
}

/// Whether the kernels on warp-group products serve these sizes.
bool has_wgmma_path(const GatedDeltaShape& shape, std::int64_t tokens, Dtype storage) {
  return storage == Dtype::bf16 && tokens > 0 && !shape.channel_decay &&
         shape.key_dim == gated_delta::kWide && shape.value_dim == gated_delta::kWide;
}

/// Either path may run: which one, addresses decide too.
std::size_t bytes_of(const GatedDeltaShape& shape, std::int64_t tokens, Dtype storage, bool whole) {
  std::size_t bytes = 0;
  execution::with_storage_type(
      storage, [&]<class S>() { bytes = sizes<S>(shape, tokens).place(nullptr, whole); });
  if (!has_wgmma_path(shape, tokens, storage)) return bytes;
  gated_delta::Chunked chunked{.arrays = sizes<execution::Bf16>(shape, tokens)};
  return std::max(bytes, chunked.place(nullptr, whole));
}

/// `arrays` for the kernels on warp-group products, if these can run on them.
template <class S>
std::optional<gated_delta::Chunked> wgmma_arrays(const GatedDeltaShape& shape,
                                                 const Arrays<S, Accumulation<S>>& arrays,
                                                 void* workspace, bool whole) {
  // Rows of whole packs of 16 bytes; an absent address is.
  [[maybe_unused]] const auto whole_packs = [](const void* data, std::int64_t stride) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
  };
  if constexpr (std::is_same_v<S, execution::Bf16>)
    if (machine().wgmma() && has_wgmma_path(shape, arrays.tokens, Dtype::bf16) &&
        whole_packs(arrays.qkv, arrays.qkv_stride) && whole_packs(arrays.y, 0) &&
        whole_packs(arrays.dy, 0) && whole_packs(arrays.dqkv, arrays.dqkv_stride)) {
      gated_delta::Chunked chunked{.arrays = arrays};
      chunked.place(workspace, whole);
      return chunked;
    }
  return std::nullopt;
}

/// Flops for each token and value head of `products` with a state, and of `pairs` with the tokens
/// of a chunk, which are causal halves.
double flops_of(const GatedDeltaShape& shape, std::int64_t tokens, double products, double pairs) {
  const double state = static_cast<double>(shape.key_dim * shape.value_dim);
  const double dims = static_cast<double>(shape.key_dim + shape.value_dim);
  return static_cast<double>(tokens * shape.value_heads) *
         (2 * products * state + pairs * kGatedDeltaChunk * dims);
}

double input_bytes(const GatedDeltaShape& shape, std::int64_t tokens, Dtype storage) {
  const std::int64_t gates = shape.value_heads + shape.decays();  // of a token
  return bytes(tokens * (shape.channels() + gates) + gates, storage) + bytes(tokens, Dtype::int32);
}

}  // namespace

std::string GatedDeltaShape::fault() const {
  if (key_heads <= 0 || value_heads % key_heads != 0)
    return "value_heads is not a multiple of key_heads";
  return key_dim > 0 && value_dim > 0 ? "" : "a head has no width";
}

std::size_t GatedDeltaForward::workspace_bytes() const {
  return bytes_of(shape, tokens, storage, false);
}
std::size_t GatedDeltaBackward::workspace_bytes() const {
  return bytes_of(shape, tokens, storage, true);
}
template <bool kAdjoint>
std::size_t GatedDeltaSegment<kAdjoint>::workspace_bytes() const {
  return bytes_of(shape, tokens, storage, false);
}
template <bool kAdjoint>
std::size_t GatedDeltaEnter<kAdjoint>::workspace_bytes() const {
  return static_cast<std::size_t>(shape.values() * shape.key_dim) *
         execution::size_bytes(execution::accumulation(storage));
}

// What reads, corrects and writes the state; the two products of keys and that of scores with U.
Cost GatedDeltaForward::cost() const {
  return {flops_of(shape, tokens, 3, 2),
          input_bytes(shape, tokens, storage) + bytes(tokens * shape.values(), storage)};
}

// The same without outputs, then two products for each of the forward's.
Cost GatedDeltaBackward::cost() const {
  return {flops_of(shape, tokens, 8, 5),
          2 * input_bytes(shape, tokens, storage) + bytes(tokens * shape.values(), storage) +
              bytes(shape.value_heads + shape.decays(), execution::accumulation(storage))};
}

// The state and its N rows of matrices.
template <bool kAdjoint>
Cost GatedDeltaSegment<kAdjoint>::cost() const {
  GatedDeltaShape taller = shape;
  taller.value_dim += shape.key_dim;
  return {flops_of(taller, tokens, 2, 1),
          input_bytes(shape, tokens, storage) +
              bytes(gated_delta_segment_elements(shape), execution::accumulation(storage))};
}

template <bool kAdjoint>
Cost GatedDeltaEnter<kAdjoint>::cost() const {
  const std::int64_t elements = gated_delta_segment_elements(shape);
  return {product_flops(segments * shape.values(), shape.key_dim, shape.key_dim),
          bytes(segments * elements, execution::accumulation(storage))};
}

template <bool kAdjoint>
std::string GatedDeltaEnter<kAdjoint>::fault() const {
  if (segments <= 0 || tokens % segments != 0) return "the tokens do not divide into segments";
  return segment >= 0 && segment < segments ? shape.fault() : "there is no such segment";
}

/// @throws Error that names the widest heads, if a block's tiles do not fit into shared memory
void require_room(const GatedDeltaShape& shape, std::int64_t floats) {
  const std::int64_t bytes = floats * static_cast<std::int64_t>(sizeof(float));
  STOWAGE_ASSERT(bytes <= machine().shared_bytes,
                 "gated_delta: key_dim {} needs {} bytes of shared memory, of {}", shape.key_dim,
                 bytes, machine().shared_bytes);
}

/// The same of what comes before gradients.
void require_walk_room(const GatedDeltaShape& shape) {
  const int key_dim = static_cast<int>(shape.key_dim);
  require_room(shape, std::max(gated_delta::prepare_room(key_dim, shape.channel_decay),
                               gated_delta::scan_room(key_dim, shape.channel_decay)));
}

template <class S>
int GatedDeltaForward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  auto p = arrays_of<S>(*this, o.inputs, o.workspace);
  p.y = o.y;
  p.final_state = o.final_state;
  if (const auto chunked = wgmma_arrays<S>(shape, p, o.workspace, false))
    return gated_delta::launch_forward(*chunked, stream);
  require_walk_room(shape);
  return gated_delta::launch_forward(p, stream);
}

template <class S>
int GatedDeltaBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  auto p = arrays_of<S>(*this, o.inputs, o.workspace, true);
  p.dy = o.dy;
  p.dqkv = o.gradients.dqkv.data;
  p.dqkv_stride = o.gradients.dqkv.stride;
  p.dba = o.gradients.dba.data;
  p.dba_stride = o.gradients.dba.stride;
  p.da = o.gradients.da;
  p.da_log = o.gradients.da_log;
  p.ddt_bias = o.gradients.ddt_bias;
  p.accumulate = accumulate;
  p.dfinal_state = o.dfinal_state;
  p.dinitial_state = o.dinitial_state;
  if (const auto chunked = wgmma_arrays<S>(shape, p, o.workspace, true))
    return gated_delta::launch_backward(*chunked, stream);
  const int key_dim = static_cast<int>(shape.key_dim);
  require_room(shape, shape.channel_decay ? gated_delta::channel_gradients_room(key_dim)
                                          : gated_delta::gradients_room(key_dim));
  return gated_delta::launch_backward(p, stream);
}

template <bool kAdjoint>
template <class S>
int GatedDeltaSegment<kAdjoint>::launch(const Operands<Pointers<S>>& o, void* stream) const {
  auto p = arrays_of<S>(*this, o.inputs, o.workspace);
  p.dy = o.dy;
  (kAdjoint ? p.dinitial_state : p.final_state) = o.to;
  p.transition = o.to + shape.values() * shape.key_dim;
  if (const auto chunked = wgmma_arrays<S>(shape, p, o.workspace, false))
    return gated_delta::launch_segment(*chunked, stream);
  require_walk_room(shape);
  return gated_delta::launch_segment(p, stream);
}

template <bool kAdjoint>
void GatedDeltaSegment<kAdjoint>::run(Queue& queue, const Operands<View>& views) const {
  kernels::run(queue, *this, views);
}

// The steps write the state and the workspace in turn, the last one the state.
template <bool kAdjoint>
void GatedDeltaEnter<kAdjoint>::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  const std::int64_t steps = kAdjoint ? segments - 1 - segment : segment;
  const std::int64_t elements = shape.values() * shape.key_dim;
  execution::with_storage_type(storage, [&]<class S>() {
    using A = Accumulation<S>;
    const auto o = addresses<S>(*this, views);
    gated_delta::SegmentStep<A, kAdjoint> step{.seq_idx = o.seq_idx,
                                               .after = o.state,
                                               .value_dim = shape.value_dim,
                                               .key_dim = shape.key_dim,
                                               .elements = elements};
    if (steps == 0) execution::parallel_for(queue, elements, step);
    for (std::int64_t i = 0; i < steps; ++i) {
      const std::int64_t from = kAdjoint ? segments - 1 - i : i;
      step.left = o.all + from * gated_delta_segment_elements(shape);
      step.border = tokens / segments * (kAdjoint ? from : from + 1);
      step.after = (steps - 1 - i) % 2 == 0 ? o.state : o.workspace;
      execution::parallel_for(queue, elements, step);
      step.before = step.after;
    }
  });
}

STOWAGE_OPERATOR_RUN(GatedDeltaForward)
STOWAGE_OPERATOR_RUN(GatedDeltaBackward)
template struct GatedDeltaSegment<false>;
template struct GatedDeltaSegment<true>;
template struct GatedDeltaEnter<false>;
template struct GatedDeltaEnter<true>;

}  // namespace stowage::kernels
