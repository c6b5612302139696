#include "layers/mixers/convolution.hpp"

#include "kernels/decode/conv1d_step.hpp"

namespace stowage::layers {

using kernels::ColumnsOf;

void Convolution::forward(Recorder& recorder, const ColumnsOf<Tensor>& x, Tensor y,
                          Tensor halo) const {
  recorder.compute("conv1d",
                   kernels::Conv1dForward{.tokens = recorder.tokens(),
                                          .channels = channels(),
                                          .width = weight_.local(1),
                                          .storage = recorder.storage(),
                                          .halo = static_cast<bool>(halo),
                                          .biased = bias_.has_value()},
                   {.x = x,
                    .w = recorder.parameter(weight_),
                    .b = bias_ ? recorder.parameter(*bias_) : Tensor{},
                    .seq_idx = recorder.batch().seq_idx,
                    .y = y,
                    .halo = halo});
}

execution::TensorInfo Convolution::rows(const std::string& prefix, Precision precision,
                                        const DecodeShape& shape) const {
  return execution::one_buffer(prefix + ".conv_rows", precision.storage,
                               {shape.sequences, weight_.local(1) - 1, channels()},
                               execution::Lifetime::sequence_state);
}

void Convolution::step(Recorder& recorder, const std::string& prefix, const ColumnsOf<Tensor>& x,
                       Tensor y) const {
  recorder.compute(
      "conv1d_step",
      kernels::Conv1dStep{.sequences = recorder.tokens(),
                          .channels = channels(),
                          .width = weight_.local(1),
                          .storage = recorder.storage(),
                          .biased = bias_.has_value()},
      {.x = x,
       .w = recorder.parameter(weight_),
       .b = bias_ ? recorder.parameter(*bias_) : Tensor{},
       .positions = recorder.batch().positions,
       .rows = recorder.sequence_state(rows(prefix, {recorder.storage()}, recorder.batch().decode)),
       .y = y});
}

Tensor Convolution::backward(Recorder& recorder, const ColumnsOf<Tensor>& x, Tensor dy,
                             const ColumnsOf<Tensor>& dx, Tensor halo) const {
  const kernels::Conv1dBackward conv{.tokens = recorder.tokens(),
                                     .channels = channels(),
                                     .width = weight_.local(1),
                                     .storage = recorder.storage(),
                                     .accumulate = recorder.batch().accumulate,
                                     .halo = static_cast<bool>(halo),
                                     .biased = bias_.has_value()};
  const Tensor workspace = recorder.workspace("conv_workspace", conv.workspace_bytes());
  Tensor dhalo;
  if (halo) dhalo = recorder.scratch("dhalo", {kernels::kConv1dHalo, conv.channels});
  recorder.compute("conv1d_backward", conv,
                   {.dy = dy,
                    .x = x,
                    .w = recorder.parameter(weight_),
                    .b = bias_ ? recorder.parameter(*bias_) : Tensor{},
                    .seq_idx = recorder.batch().seq_idx,
                    .dx = dx,
                    .dw = recorder.gradient(weight_),
                    .db = bias_ ? recorder.gradient(*bias_) : Tensor{},
                    .workspace = workspace,
                    .halo = halo,
                    .dhalo = dhalo});
  return dhalo;
}

}  // namespace stowage::layers
