#include "kernels/conv_scan/conv_scan_cuda.hpp"

#include <algorithm>

#include "execution/error.hpp"
#include "kernels/conv1d/conv1d_layout.hpp"
#include "kernels/conv_scan/convolve_launch.hpp"
#include "kernels/hopper/tensor_map.hpp"
#include "kernels/machine.hpp"
#include "kernels/ssd/ssd_stages.hpp"

namespace stowage::kernels {
namespace {

using namespace conv_scan;

std::int64_t channels_of(const SsdCudaShape& shape) {
  return static_cast<std::int64_t>(shape.heads) * shape.head_dim + 2LL * shape.groups * shape.state;
}

/// The scan's shape, with rows as `convolved` has them.
SsdCudaShape scan_shape(SsdCudaShape shape) {
  shape.xbc_stride = shape.dxbc_stride = channels_of(shape);
  return shape;
}

/// (tokens, C) bf16 as tiles of 64 columns and `rows` tokens.
CUtensorMap tile_map(const SsdCudaShape& shape, const void* base, std::int64_t stride, int rows,
                     hopper::Swizzle swizzle) {
  const std::uint64_t extents[] = {64, static_cast<std::uint64_t>(shape.tokens),
                                   static_cast<std::uint64_t>(channels_of(shape) / 64)};
  const std::uint64_t strides[] = {static_cast<std::uint64_t>(stride) * 2, 128};
  const std::uint32_t box[] = {64, static_cast<std::uint32_t>(rows), 1};
  return hopper::make_tensor_map(hopper::TensorMapType::bf16, base, extents, strides, box, swizzle);
}

/// The launch of everything before the scan; the caller adds where states go.
template <class Args>
ConvolveParameters convolve_parameters(const SsdCudaShape& shape, const Args& args,
                                       const ssd::Sizes& sizes, float* records, ssd::Span* spans) {
  ConvolveParameters p;
  p.steps.sizes = sizes;
  p.steps.dt_raw = args.scan.dt_raw;
  p.steps.dt_stride = shape.dt_stride;
  p.steps.a_log = args.scan.a_log;
  p.steps.dt_bias = args.scan.dt_bias;
  p.steps.seq_idx = args.scan.seq_idx;
  p.steps.dt_min = shape.dt_min;
  p.steps.dt_max = shape.dt_max;
  p.steps.bf16_parameters = shape.bf16_parameters;
  p.steps.records = records;
  p.steps.spans = spans;
  p.state = shape.state;
  p.width = args.conv_width;
  p.in = tile_map(shape, args.scan.xbc, shape.xbc_stride, ssd::kChunk, hopper::Swizzle::b128);
  p.halo = tile_map(shape, args.scan.xbc, shape.xbc_stride, kHalo, hopper::Swizzle::none);
  p.out = tile_map(shape, args.convolved, channels_of(shape), ssd::kChunk, hopper::Swizzle::b128);
  p.weight = args.conv_weight;
  p.bias = args.conv_bias;
  return p;
}

void check(int status, const char* kernel) {
  STOWAGE_ASSERT(status == cudaSuccess, "conv_scan: launch of {} failed: {}", kernel,
                 cudaGetErrorString(static_cast<cudaError_t>(status)));
}

Conv1dCudaShape conv_shape(const SsdCudaShape& shape, int width = 4) {
  Conv1dCudaShape conv;
  conv.width = width;
  conv.tokens = shape.tokens;
  conv.channels = static_cast<int>(channels_of(shape));
  conv.x_stride = shape.xbc_stride;
  conv.y_stride = conv.channels;
  conv.dx_stride = shape.dxbc_stride;
  conv.bf16_parameters = shape.bf16_parameters;
  return conv;
}

}  // namespace

bool conv_scan_cuda_serves(const SsdCudaShape& shape) {
  return machine().wgmma() && shape.tokens > 0 && shape.head_dim > 0 &&
         shape.head_dim % ssd::kPart == 0 && (shape.state == 64 || shape.state == 128) &&
         shape.groups > 0 &&
         served(shape.heads / shape.groups * (shape.head_dim / ssd::kPart), shape.state) &&
         shape.xbc_stride % 8 == 0 && shape.dxbc_stride % 8 == 0;
}

std::size_t conv_scan_cuda_forward_workspace_bytes(const SsdCudaShape& shape) {
  return ssd_cuda_forward_workspace_bytes(scan_shape(shape));
}

std::size_t conv_scan_cuda_backward_workspace_bytes(const SsdCudaShape& shape) {
  return std::max(ssd_cuda_backward_workspace_bytes(scan_shape(shape)),
                  conv1d::workspace_bytes(conv_shape(shape)));
}

void conv_scan_cuda_forward(const SsdCudaShape& shape, const ConvScanCudaForward& args,
                            cudaStream_t stream) {
  const SsdCudaShape scan = scan_shape(shape);
  const ssd::ForwardRoom room = ssd::forward_room(scan, args.scan.workspace);
  ConvolveParameters p = convolve_parameters(shape, args, room.sizes, room.records, room.spans);
  p.piece_chunks = room.sizes.piece_chunks;
  p.partials = room.partials;
  p.through = room.through;
  check(launch_convolve(p, stream), "convolve");
  SsdCudaForward after = args.scan;
  after.xbc = args.convolved;
  ssd::forward_from_states(scan, room.sizes, after, stream);
}

void conv_scan_cuda_backward(const SsdCudaShape& shape, const ConvScanCudaBackward& args,
                             cudaStream_t stream) {
  const SsdCudaShape scan = scan_shape(shape);
  const ssd::BackwardRoom room = ssd::backward_room(scan, args.scan.workspace);
  // the forward's segments share out the convolution, as nothing but the scan needs states here
  ssd::Sizes sizes = ssd::forward_room(scan, nullptr).sizes;
  sizes.record_floats = room.sizes.record_floats;
  check(launch_convolve(convolve_parameters(shape, args, sizes, room.records, room.spans), stream),
        "convolve");
  SsdCudaBackward after = args.scan;
  after.xbc = args.convolved;
  after.dxbc = args.convolved;
  ssd::backward_from_records(scan, after, stream);

  Conv1dCudaBackward conv;
  conv.dy = args.convolved;
  conv.x = args.scan.xbc;
  conv.w = args.conv_weight;
  conv.b = args.conv_bias;
  conv.seq_idx = args.scan.seq_idx;
  conv.dx = args.scan.dxbc;
  conv.dw = args.dconv_weight;
  conv.db = args.dconv_bias;
  conv.workspace = args.scan.workspace;
  conv.accumulate = args.scan.accumulate;
  check(conv1d::launch_backward(conv_shape(shape, args.conv_width), conv, stream), "conv1d");
}

}  // namespace stowage::kernels
