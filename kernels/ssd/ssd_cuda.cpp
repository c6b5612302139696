#include "kernels/ssd/ssd_cuda.hpp"

#include "execution/error.hpp"
#include "kernels/hopper/tensor_map.hpp"
#include "kernels/launch.hpp"
#include "kernels/machine.hpp"
#include "kernels/ssd/segment.hpp"
#include "kernels/ssd/ssd_launch.hpp"
#include "kernels/ssd/ssd_simple.hpp"

namespace stowage::kernels {
namespace {

using namespace ssd;

/// A (tokens, width) bf16 matrix as tiles of 64 columns, `rows` tokens of `tiles` neighbours a box.
CUtensorMap tile_map(const void* base, std::int64_t tokens, std::int64_t width, std::int64_t stride,
                     int tiles, int rows = kChunk) {
  const std::uint64_t extents[] = {kPart, static_cast<std::uint64_t>(tokens),
                                   static_cast<std::uint64_t>(width / kPart)};
  const std::uint64_t strides[] = {static_cast<std::uint64_t>(stride) * 2, kPart * 2};
  const std::uint32_t box[] = {kPart, static_cast<std::uint32_t>(rows),
                               static_cast<std::uint32_t>(tiles)};
  return hopper::make_tensor_map(hopper::TensorMapType::bf16, base, extents, strides, box,
                                 hopper::Swizzle::b128, tiles == 1 ? 128 : 256);
}

/// Its first columns as heads of kCutColumns: (column, token, head), `columns` of `rows` tokens a
/// box.
CUtensorMap head_map(const void* base, const Sizes& sizes, std::int64_t stride, int columns,
                     int rows = kChunk) {
  const std::uint64_t extents[] = {kCutColumns, static_cast<std::uint64_t>(sizes.tokens),
                                   static_cast<std::uint64_t>(sizes.heads)};
  const std::uint64_t strides[] = {static_cast<std::uint64_t>(stride) * 2, kCutColumns * 2};
  const std::uint32_t box[] = {static_cast<std::uint32_t>(columns),
                               static_cast<std::uint32_t>(rows), 1};
  return hopper::make_tensor_map(hopper::TensorMapType::bf16, base, extents, strides, box,
                                 columns == kPart ? hopper::Swizzle::b128 : hopper::Swizzle::b32,
                                 128);
}

/// The sizes of kernels whose units are heads, if those of `sizes` cut them.
Sizes of_heads(Sizes sizes, int columns) {
  if (columns == kPart) return sizes;
  sizes.units = sizes.heads;
  sizes.group_units = sizes.heads / sizes.groups;
  return sizes;
}

CUtensorMap xbc_map(const SsdCudaShape& shape, const Sizes& sizes, const void* xbc, int tiles) {
  return tile_map(xbc, shape.tokens, sizes.c_column + sizes.groups * shape.state, shape.xbc_stride,
                  tiles);
}

void check(cudaError_t status, const char* kernel) {
  STOWAGE_ASSERT(status == cudaSuccess, "ssd: launch of {} failed: {}", kernel,
                 cudaGetErrorString(status));
}

void prepare(const SsdCudaShape& shape, const Sizes& sizes, const SsdCudaInputs& args,
             const Common& common, cudaStream_t stream) {
  PrepareParameters p;
  p.sizes = sizes;
  p.dt_raw = args.dt_raw;
  p.dt_stride = shape.dt_stride;
  p.a_log = args.a_log;
  p.dt_bias = args.dt_bias;
  p.seq_idx = args.seq_idx;
  p.dt_min = shape.dt_min;
  p.dt_max = shape.dt_max;
  p.bf16_parameters = shape.bf16_parameters;
  p.records = common.records;
  p.spans = common.spans;
  check(launch_prepare(p, stream), "prepare");
}

StatesDirection state_direction(const SsdCudaShape& shape, const Sizes& sizes, const void* xbc,
                                const float* initial, const Partial& partial) {
  StatesDirection d;
  d.v = xbc_map(shape, sizes, xbc, kStatesUnits);
  d.u = xbc_map(shape, sizes, xbc, shape.state / kPart);
  d.u_column = sizes.b_column;
  d.edge_state = initial;
  d.partials = partial.states;
  d.through = partial.through;
  return d;
}

}  // namespace

namespace ssd {

ForwardRoom forward_room(const SsdCudaShape& shape, void* workspace) {
  ForwardRoom room;
  room.sizes = sizes_of(shape, false);
  room.sizes.pieces = 1;  // the convolution leaves one state a segment
  room.sizes.piece_chunks = room.sizes.segment_chunks;
  const ForwardSpace space = forward_space(shape, room.sizes, workspace);
  room.records = space.common.records;
  room.spans = space.common.spans;
  room.partials = space.partial.states;
  room.through = space.partial.through;
  return room;
}

BackwardRoom backward_room(const SsdCudaShape& shape, void* workspace) {
  BackwardRoom room;
  room.sizes = sizes_of(shape, true);
  const BackwardSpace space = backward_space(shape, room.sizes, workspace);
  room.records = space.common.records;
  room.spans = space.common.spans;
  return room;
}

void forward_from_states(const SsdCudaShape& shape, const Sizes& sizes, const SsdCudaForward& args,
                         cudaStream_t stream) {
  const ForwardSpace space = forward_space(shape, sizes, args.workspace);
  const bool enters = sizes.segments > 1 || args.initial_state != nullptr;
  if (enters) {
    EnterParameters enter;
    enter.sizes = sizes;
    enter.state = shape.state;
    enter.columns = columns_of(shape.head_dim);
    enter.spans = space.common.spans;
    enter.partials = space.partial.states;
    enter.through = space.partial.through;
    enter.initial_state = args.initial_state;
    enter.entering = space.entering;
    check(launch_enter(enter, stream), "enter");
  }
  ScanParameters scan;
  scan.sizes = sizes;
  scan.state = shape.state;
  scan.columns = columns_of(shape.head_dim);
  scan.x = xbc_map(shape, sizes, args.xbc, kScanUnits);
  scan.bc = xbc_map(shape, sizes, args.xbc, shape.state / kPart);
  scan.records = space.common.records;
  scan.spans = space.common.spans;
  scan.entering = enters ? space.entering : nullptr;
  scan.through = space.partial.through;
  scan.d = args.d;
  scan.bf16_parameters = shape.bf16_parameters;
  scan.y = tile_map(args.y, shape.tokens, static_cast<std::int64_t>(sizes.units) * kPart,
                    shape.y_stride, 1, kWarpRows);
  scan.final_state = args.final_state;
  scan.total_decay = args.total_decay;
  check(launch_scan(scan, stream), "scan");
}

void backward_from_records(const SsdCudaShape& shape, const SsdCudaBackward& args,
                           cudaStream_t stream) {
  const Sizes sizes = sizes_of(shape, true);
  STOWAGE_ASSERT(shape.dxbc_stride % 8 == 0, "ssd: row stride {} of dxbc", shape.dxbc_stride);
  const BackwardSpace space = backward_space(shape, sizes, args.workspace);

  const std::int64_t width = static_cast<std::int64_t>(sizes.units) * kPart;
  StatesParameters states;
  states.sizes = sizes;
  states.state = shape.state;
  states.columns = columns_of(shape.head_dim);
  states.directions = 2;
  states.direction[0] = state_direction(shape, sizes, args.xbc, args.initial_state, space.state);
  states.direction[0].images = space.states;
  states.direction[1] = state_direction(shape, sizes, args.xbc, args.dfinal_state, space.adjoint);
  states.direction[1].v = tile_map(args.dy, shape.tokens, width, shape.y_stride, kStatesUnits);
  states.direction[1].u_column = sizes.c_column;
  states.direction[1].reverse = true;
  states.direction[1].end_state = args.dinitial_state;
  states.direction[1].images = space.adjoints;
  states.scales = space.scales;
  states.records = space.common.records;
  states.spans = space.common.spans;
  check(launch_segment_states(states, stream), "segment states");
  check(launch_chunk_states(states, stream), "chunk states");

  GradientParameters gradient;
  gradient.state = shape.state;
  gradient.columns = columns_of(shape.head_dim);
  gradient.sizes = of_heads(sizes, gradient.columns);
  if (gradient.columns == kPart) {
    gradient.x = xbc_map(shape, sizes, args.xbc, 1);
    gradient.dy = tile_map(args.dy, shape.tokens, width, shape.y_stride, 1);
  } else {
    constexpr int kRest = kCutColumns - kPart;
    gradient.x = head_map(args.xbc, sizes, shape.xbc_stride, kPart);
    gradient.x_rest = head_map(args.xbc, sizes, shape.xbc_stride, kRest);
    gradient.dy = head_map(args.dy, sizes, shape.y_stride, kPart);
    gradient.dy_rest = head_map(args.dy, sizes, shape.y_stride, kRest);
    gradient.dx = head_map(args.dxbc, sizes, shape.dxbc_stride, kPart, kWarpRows);
    gradient.dx_rest = head_map(args.dxbc, sizes, shape.dxbc_stride, kRest, kWarpRows);
  }
  gradient.bc = xbc_map(shape, sizes, args.xbc, shape.state / kPart);
  gradient.records = space.common.records;
  gradient.spans = space.common.spans;
  gradient.states = space.states;
  gradient.adjoints = space.adjoints;
  gradient.scales = space.scales;
  gradient.a_log = args.a_log;
  gradient.d = args.d;
  gradient.bf16_parameters = shape.bf16_parameters;
  gradient.dxbc = tile_map(args.dxbc, shape.tokens, sizes.c_column + sizes.groups * shape.state,
                           shape.dxbc_stride, 1, kWarpRows);
  gradient.dt_min = shape.dt_min;
  gradient.dt_max = shape.dt_max;
  gradient.ddt_raw = args.ddt_raw;
  gradient.ddt_stride = shape.ddt_stride;
  gradient.dstep = space.dstep;
  gradient.sums = space.sums;
  check(launch_gradient(gradient, stream), "gradient");

  FinishParameters finish;
  finish.sizes = gradient.sizes;
  finish.dt_raw = args.dt_raw;
  finish.dt_stride = shape.dt_stride;
  finish.a_log = args.a_log;
  finish.dt_bias = args.dt_bias;
  finish.dt_min = shape.dt_min;
  finish.dt_max = shape.dt_max;
  finish.bf16_parameters = shape.bf16_parameters;
  finish.dstep = space.dstep;
  finish.sums = space.sums;
  finish.ddt_raw = args.ddt_raw;
  finish.ddt_stride = shape.ddt_stride;
  finish.da_log = args.da_log;
  finish.dd = args.dd;
  finish.ddt_bias = args.ddt_bias;
  finish.accumulate = args.accumulate;
  check(launch_finish(finish, stream), "finish");
}

}  // namespace ssd

void ssd_cuda_forward(const SsdCudaShape& shape, const SsdCudaForward& args, cudaStream_t stream) {
  const Sizes sizes = sizes_of(shape, false);
  const ForwardSpace space = forward_space(shape, sizes, args.workspace);
  prepare(shape, sizes, args, space.common, stream);

  StatesParameters states;
  states.sizes = sizes;
  states.state = shape.state;
  states.columns = columns_of(shape.head_dim);
  states.direction[0] = state_direction(shape, sizes, args.xbc, args.initial_state, space.partial);
  states.records = space.common.records;
  states.spans = space.common.spans;
  check(launch_segment_states(states, stream), "segment states");
  forward_from_states(shape, sizes, args, stream);
}

void ssd_cuda_backward(const SsdCudaShape& shape, const SsdCudaBackward& args,
                       cudaStream_t stream) {
  const Sizes sizes = sizes_of(shape, true);
  prepare(shape, sizes, args, backward_space(shape, sizes, args.workspace).common, stream);
  backward_from_records(shape, args, stream);
}

namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

template <class S>
SimpleMatrix simple_matrix(const Matrix<S>& m, std::int64_t first = 0) {
  return {m.data + first, m.stride};
}

/// Of SsdForward, SsdBackward or a segment.
template <class Op, class S>
SimpleScan simple_scan(const Op& op, const SsdInputs<Pointers<S>>& inputs, float* workspace) {
  const SsdShape& shape = op.shape;
  const std::int64_t shared_bytes =
      simple_shared_bytes(static_cast<int>(shape.head_dim), static_cast<int>(shape.state));
  STOWAGE_ASSERT(op.tokens < kMostTokens, "ssd: {} tokens", op.tokens);
  STOWAGE_ASSERT(shared_bytes <= machine().shared_bytes,
                 "ssd: head_dim {} and state {} need {} bytes of shared memory, of {}",
                 shape.head_dim, shape.state, shared_bytes, machine().shared_bytes);
  return {.bf16 = op.storage == execution::Dtype::bf16,
          .tokens = static_cast<int>(op.tokens),
          .heads = static_cast<int>(shape.heads),
          .head_dim = static_cast<int>(shape.head_dim),
          .groups = static_cast<int>(shape.groups),
          .state = static_cast<int>(shape.state),
          .dt_min = static_cast<float>(shape.dt_min),
          .dt_max = static_cast<float>(shape.dt_max),
          .x = simple_matrix(inputs.xbc),
          .dt = simple_matrix(inputs.dt),
          .b = simple_matrix(inputs.xbc, shape.inner()),
          .c = simple_matrix(inputs.xbc, shape.inner() + shape.shared()),
          .a_log = inputs.a_log,
          .d = inputs.d,
          .dt_bias = inputs.dt_bias,
          .seq_idx = inputs.seq_idx,
          .initial_state = inputs.initial_state,
          .workspace = workspace};
}

template <class Op, class S>
SsdCudaShape cuda_shape(const Op& op, const SsdInputs<Pointers<S>>& inputs) {
  SsdCudaShape sizes = detail::cuda_shape(op.shape, op.tokens);
  sizes.xbc_stride = inputs.xbc.stride;
  sizes.dt_stride = inputs.dt.stride;
  return sizes;
}

}  // namespace

template <class S>
int SsdForward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const auto on = static_cast<cudaStream_t>(stream);
  if (tokens == 0 || !shape.on_tensor_cores(storage))
    return launch_simple_forward(simple_scan(*this, o.inputs, o.workspace),
                                 {{o.y, shape.inner()}, o.final_state, o.total_decay}, on);
  ssd_cuda_forward(cuda_shape(*this, o.inputs),
                   {cuda_inputs(o.inputs), o.y, o.final_state, o.total_decay, o.workspace}, on);
  return cudaSuccess;
}

template <class S>
int SsdBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const auto on = static_cast<cudaStream_t>(stream);
  const SsdGradients<Pointers<S>>& g = o.gradients;
  if (tokens == 0 || !shape.on_tensor_cores(storage))
    return launch_simple_backward(simple_scan(*this, o.inputs, o.workspace),
                                  {.dy = {o.dy, shape.inner()},
                                   .dx = simple_matrix(g.dxbc),
                                   .ddt = simple_matrix(g.ddt),
                                   .db = simple_matrix(g.dxbc, shape.inner()),
                                   .dc = simple_matrix(g.dxbc, shape.inner() + shape.shared()),
                                   .da_log = g.da_log,
                                   .dd = g.dd,
                                   .ddt_bias = g.ddt_bias,
                                   .dfinal_state = o.dfinal_state,
                                   .dinitial_state = o.dinitial_state,
                                   .accumulate = accumulate},
                                  on);
  SsdCudaShape sizes = cuda_shape(*this, o.inputs);
  sizes.dxbc_stride = g.dxbc.stride;
  sizes.ddt_stride = g.ddt.stride;
  ssd_cuda_backward(sizes,
                    {cuda_inputs(o.inputs), o.dy, o.dfinal_state, g.dxbc.data, g.ddt.data, g.da_log,
                     g.dd, g.ddt_bias, o.dinitial_state, o.workspace, accumulate},
                    on);
  return cudaSuccess;
}

template <bool kAdjoint>
template <class S>
int SsdSegment<kAdjoint>::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const auto on = static_cast<cudaStream_t>(stream);
  const SimpleScan scan = simple_scan(*this, o.inputs, nullptr);
  if constexpr (kAdjoint) return launch_segment_adjoint(scan, {o.dy, shape.inner()}, o.to, on);
  return launch_segment_state(scan, o.to, on);
}

STOWAGE_LAUNCHES(SsdForward)
STOWAGE_LAUNCHES(SsdBackward)
STOWAGE_LAUNCHES(SsdSegmentState)
STOWAGE_LAUNCHES(SsdSegmentAdjoint)

}  // namespace stowage::kernels
