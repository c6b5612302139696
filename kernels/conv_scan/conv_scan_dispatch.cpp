#include <cuda_runtime_api.h>

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "kernels/conv_scan/conv_scan_cuda.hpp"
#include "kernels/conv_scan/conv_scan_steps.hpp"
#include "kernels/operands.hpp"
#include "kernels/ssd/ssd_cuda_dispatch.hpp"
#include "kernels/ssd/ssd_layout.hpp"

namespace stowage::kernels::detail {

using execution::Bf16;

namespace {

template <class S>
SsdCudaShape cuda_shape(const SsdShape& shape, const ConvScanInputs<S>& inputs) {
  SsdCudaShape s = detail::cuda_shape(shape, inputs.xbc.rows);
  s.bf16_parameters = Operands("conv_scan").is_bf16(execution::kDtypeOf<S>);
  s.xbc_stride = inputs.xbc.stride;
  s.dt_stride = inputs.dt.stride;
  return s;
}

/// The same with the gradients' strides.
template <class S>
SsdCudaShape cuda_shape(const SsdShape& shape, const ConvScanInputs<S>& inputs,
                        const ConvScanGradients<S>& gradients) {
  SsdCudaShape s = cuda_shape(shape, inputs);
  s.dxbc_stride = gradients.dxbc.stride;
  s.ddt_stride = gradients.ddt.stride;
  return s;
}

template <class S>
bool is_fused(const SsdCudaShape& shape, std::initializer_list<const void*> pointers) {
  return std::is_same_v<S, Bf16> && conv_scan_cuda_serves(shape) &&
         std::ranges::all_of(
             pointers, [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; });
}

template <class S, class Args>
void put_inputs(Args& args, const ConvScanInputs<S>& inputs, const ConvScanRoom& room) {
  args.scan.xbc = inputs.xbc.data;
  args.scan.dt_raw = inputs.dt.data;
  args.scan.a_log = inputs.a_log;
  args.scan.d = inputs.d;
  args.scan.dt_bias = inputs.dt_bias;
  args.scan.seq_idx = inputs.seq_idx;
  args.scan.workspace = room.parts;
  args.conv_width = static_cast<int>(inputs.conv_width);
  args.conv_weight = inputs.conv_weight;
  args.conv_bias = inputs.conv_bias;
  args.convolved = room.convolved;
}

}  // namespace

template <class S>
bool conv_scan_forward_is_fused(const SsdShape& shape, const ConvScanInputs<S>& inputs,
                                const S* y) {
  return is_fused<S>(cuda_shape(shape, inputs), {inputs.xbc.data, y});
}

template <class S>
bool conv_scan_backward_is_fused(const SsdShape& shape, const ConvScanInputs<S>& inputs,
                                 const S* dy, const ConvScanGradients<S>& gradients) {
  return is_fused<S>(cuda_shape(shape, inputs, gradients),
                     {inputs.xbc.data, dy, gradients.dxbc.data});
}

template <class S>
int conv_scan_forward_cuda(const SsdShape& shape, const ConvScanInputs<S>& inputs, S* y,
                           const ConvScanRoom& room, void* stream) {
  if (conv_scan_forward_is_fused(shape, inputs, y)) {
    ConvScanCudaForward args;
    put_inputs(args, inputs, room);
    args.scan.y = y;
    conv_scan_cuda_forward(cuda_shape(shape, inputs), args, static_cast<cudaStream_t>(stream));
    return cudaSuccess;
  }
  S* convolved = static_cast<S*>(room.convolved);
  if (const int code = inputs.conv().launch(inputs.conv_operands(convolved), stream);
      code != cudaSuccess)
    return code;
  return ssd_forward_cuda<S>(shape, inputs.scan(shape, convolved), y, room.parts, {}, stream);
}

template <class S>
int conv_scan_backward_cuda(const SsdShape& shape, const ConvScanInputs<S>& inputs, const S* dy,
                            const ConvScanGradients<S>& gradients, const ConvScanRoom& room,
                            bool accumulate, void* stream) {
  if (conv_scan_backward_is_fused(shape, inputs, dy, gradients)) {
    ConvScanCudaBackward args;
    put_inputs(args, inputs, room);
    args.scan.dy = dy;
    args.scan.dxbc = gradients.dxbc.data;
    args.scan.ddt_raw = gradients.ddt.data;
    args.scan.da_log = gradients.da_log;
    args.scan.dd = gradients.dd;
    args.scan.ddt_bias = gradients.ddt_bias;
    args.scan.accumulate = accumulate;
    args.dconv_weight = gradients.dconv_weight;
    args.dconv_bias = gradients.dconv_bias;
    conv_scan_cuda_backward(cuda_shape(shape, inputs, gradients), args,
                            static_cast<cudaStream_t>(stream));
    return cudaSuccess;
  }
  S* convolved = static_cast<S*>(room.convolved);
  S* dconvolved = static_cast<S*>(room.dconvolved);
  if (const int code = inputs.conv().launch(inputs.conv_operands(convolved), stream);
      code != cudaSuccess)
    return code;
  if (const int code =
          ssd_backward_cuda(shape, inputs.scan(shape, convolved), dy,
                            gradients.scan(shape, dconvolved), room.parts, accumulate, stream);
      code != cudaSuccess)
    return code;
  return gradients.conv(inputs, accumulate)
      .launch(gradients.conv_operands(inputs, dconvolved, static_cast<float*>(room.parts)), stream);
}

#define STOWAGE_INSTANTIATE(S)                                                                   \
  template bool conv_scan_forward_is_fused(const SsdShape&, const ConvScanInputs<S>&, const S*); \
  template bool conv_scan_backward_is_fused(const SsdShape&, const ConvScanInputs<S>&, const S*, \
                                            const ConvScanGradients<S>&);                        \
  template int conv_scan_forward_cuda(const SsdShape&, const ConvScanInputs<S>&, S*,             \
                                      const ConvScanRoom&, void*);                               \
  template int conv_scan_backward_cuda(const SsdShape&, const ConvScanInputs<S>&, const S*,      \
                                       const ConvScanGradients<S>&, const ConvScanRoom&, bool,   \
                                       void*);
STOWAGE_INSTANTIATE(float)
STOWAGE_INSTANTIATE(Bf16)
#undef STOWAGE_INSTANTIATE

}  // namespace stowage::kernels::detail
