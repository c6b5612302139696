#include <cuda_runtime_api.h>

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "execution/error.hpp"
#include "kernels/conv_scan/conv_scan_steps.hpp"
#include "kernels/conv_scan/convolve_launch.hpp"
#include "kernels/hopper/tensor_map.hpp"
#include "kernels/launch.hpp"
#include "kernels/machine.hpp"

/// Convolution and scan as one operator on the GPU: the convolution is made in the kernel that
/// makes the scan's segment states (backward: its records), the rest is the scan's.
namespace stowage::kernels {
namespace {

using namespace conv_scan;

/// (tokens, C) bf16 as tiles of 64 columns and `rows` tokens.
CUtensorMap tile_map(const SsdShape& shape, std::int64_t tokens, const void* base,
                     std::int64_t stride, int rows, hopper::Swizzle swizzle) {
  const std::uint64_t extents[] = {64, static_cast<std::uint64_t>(tokens),
                                   static_cast<std::uint64_t>(shape.channels() / 64)};
  const std::uint64_t strides[] = {static_cast<std::uint64_t>(stride) * 2, 128};
  const std::uint32_t box[] = {64, static_cast<std::uint32_t>(rows), 1};
  return hopper::make_tensor_map(hopper::TensorMapType::bf16, base, extents, strides, box, swizzle);
}

void check(cudaError_t status) {
  STOWAGE_ASSERT(status == cudaSuccess, "conv_scan: launch of convolve failed: {}",
                 cudaGetErrorString(status));
}

/// Whether the tensor-core kernels serve these rows before the convolution on this machine.
template <class S>
bool serves(const SsdShape& shape, std::int64_t tokens, std::initializer_list<std::int64_t> strides,
            std::initializer_list<const void*> pointers) {
  const auto whole = [](std::int64_t stride) { return stride % 8 == 0; };
  const auto aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  return std::is_same_v<S, execution::Bf16> && machine().wgmma() && tokens > 0 &&
         ssd::is_served(shape.heads, shape.head_dim, shape.groups, shape.state) &&
         served(static_cast<int>(shape.heads / shape.groups * shape.head_dim / ssd::kPart),
                static_cast<int>(shape.state)) &&
         std::ranges::all_of(strides, whole) && std::ranges::all_of(pointers, aligned);
}

/// The scan's shape, with rows as the convolution leaves them.
template <class Op, class S>
SsdCudaShape scan_shape(const Op& op, const OperandsOf<Op, Pointers<S>>& o) {
  SsdCudaShape shape = detail::cuda_shape(op.shape, op.tokens);
  shape.dt_stride = o.inputs.dt.stride;
  return shape;
}

/// The launch of everything before the scan; the caller adds where states go.
template <class Op, class S>
ConvolveParameters convolve_parameters(const Op& op, const OperandsOf<Op, Pointers<S>>& o,
                                       const void* convolved, const ssd::Sizes& sizes,
                                       float* records, ssd::Span* spans) {
  const SsdCudaShape shape = scan_shape<Op, S>(op, o);
  const Matrix<const S>& xbc = o.inputs.xbc;
  const auto tiles = [&](const void* base, std::int64_t stride, int rows, hopper::Swizzle swizzle) {
    return tile_map(op.shape, op.tokens, base, stride, rows, swizzle);
  };
  return {.steps = {.sizes = sizes,
                    .dt_raw = o.inputs.dt.data,
                    .dt_stride = shape.dt_stride,
                    .a_log = o.inputs.a_log,
                    .dt_bias = o.inputs.dt_bias,
                    .seq_idx = o.inputs.seq_idx,
                    .dt_min = shape.dt_min,
                    .dt_max = shape.dt_max,
                    .bf16_parameters = shape.bf16_parameters,
                    .records = records,
                    .spans = spans},
          .state = shape.state,
          .width = static_cast<int>(op.conv_width),
          .in = tiles(xbc.data, xbc.stride, ssd::kChunk, hopper::Swizzle::b128),
          .halo = tiles(xbc.data, xbc.stride, kHalo, hopper::Swizzle::none),
          .out = tiles(convolved, op.shape.channels(), ssd::kChunk, hopper::Swizzle::b128),
          .weight = o.conv_weight,
          .bias = o.conv_bias,
          .columns = ssd::columns_of(shape.head_dim)};
}

}  // namespace

template <class S>
bool ConvScanForward::is_fused(const Operands<Pointers<S>>& o) const {
  return serves<S>(shape, tokens, {o.inputs.xbc.stride}, {o.inputs.xbc.data, o.y});
}

template <class S>
int ConvScanForward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const detail::ConvScanForwardSteps<S> steps(*this, o);
  if (!is_fused<S>(o))
    return steps.each(
        [&](const auto& op, const auto& operands) { return op.launch(operands, stream); });
  const auto on = static_cast<cudaStream_t>(stream);
  const auto& scan = steps.scan;
  const SsdCudaShape sizes = scan_shape<ConvScanForward, S>(*this, o);
  const ssd::ForwardRoom room = ssd::forward_room(sizes, scan.workspace);
  ConvolveParameters p = convolve_parameters<ConvScanForward, S>(*this, o, steps.conv.y, room.sizes,
                                                                 room.records, room.spans);
  p.piece_chunks = room.sizes.piece_chunks;
  p.partials = room.partials;
  p.through = room.through;
  check(launch_convolve(p, on));
  ssd::forward_from_states(
      sizes, room.sizes, {cuda_inputs(scan.inputs), scan.y, nullptr, nullptr, scan.workspace}, on);
  return cudaSuccess;
}

template <class S>
bool ConvScanBackward::is_fused(const Operands<Pointers<S>>& o) const {
  const Matrix<S>& dxbc = o.gradients.dxbc;
  return serves<S>(shape, tokens, {o.inputs.xbc.stride, dxbc.stride},
                   {o.inputs.xbc.data, o.dy, dxbc.data});
}

template <class S>
int ConvScanBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const detail::ConvScanBackwardSteps<S> steps(*this, o);
  if (!is_fused<S>(o))
    return steps.each(
        [&](const auto& op, const auto& operands) { return op.launch(operands, stream); });
  const auto on = static_cast<cudaStream_t>(stream);
  const auto& scan = steps.scan;
  SsdCudaShape sizes = scan_shape<ConvScanBackward, S>(*this, o);
  sizes.ddt_stride = scan.gradients.ddt.stride;
  const ssd::BackwardRoom room = ssd::backward_room(sizes, scan.workspace);
  // the forward's segments share out the convolution, as nothing but the scan needs states here
  ssd::Sizes conv_sizes = ssd::forward_room(sizes, nullptr).sizes;
  conv_sizes.record_floats = room.sizes.record_floats;
  check(launch_convolve(convolve_parameters<ConvScanBackward, S>(*this, o, steps.conv.y, conv_sizes,
                                                                 room.records, room.spans),
                        on));
  ssd::backward_from_records(sizes,
                             {cuda_inputs(scan.inputs), scan.dy, nullptr, scan.gradients.dxbc.data,
                              scan.gradients.ddt.data, scan.gradients.da_log, scan.gradients.dd,
                              scan.gradients.ddt_bias, nullptr, scan.workspace, accumulate},
                             on);
  return conv_backward().launch(steps.conv_backward, stream);
}

#define STOWAGE_INSTANTIATE(Op)                                         \
  template bool Op::is_fused(const Operands<Pointers<float>>& o) const; \
  template bool Op::is_fused(const Operands<Pointers<execution::Bf16>>& o) const;
STOWAGE_INSTANTIATE(ConvScanForward)
STOWAGE_INSTANTIATE(ConvScanBackward)
#undef STOWAGE_INSTANTIATE

STOWAGE_LAUNCHES(ConvScanForward)
STOWAGE_LAUNCHES(ConvScanBackward)

}  // namespace stowage::kernels
