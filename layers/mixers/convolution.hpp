#pragma once

#include <optional>

#include "kernels/conv1d/conv1d.hpp"
#include "layers/recording/recorder.hpp"

namespace stowage::layers {

/// The causal depthwise convolution of a mixer, inside documents, with SiLU: its parameters and its
/// recorded ops.
class Convolution {
 public:
  Convolution() = default;
  /// @param weight (channels, width) @param bias (channels), or none
  explicit Convolution(Parameter weight, std::optional<Parameter> bias = {})
      : weight_(std::move(weight)), bias_(std::move(bias)) {}

  std::int64_t channels() const { return weight_.local(0); }
  const Parameter& weight() const { return weight_; }
  const Parameter& bias() const { return *bias_; }

  /// y (n, channels). @param halo rows before x that other ranks have, or none
  void forward(Recorder& recorder, const kernels::ColumnsOf<Tensor>& x, Tensor y,
               Tensor halo) const;
  /// The rows before one more token of each sequence, as a state; its name begins with `prefix`.
  execution::TensorInfo rows(const std::string& prefix, Precision precision,
                             const DecodeShape& shape) const;
  /// forward() of one more token of each sequence, y (sequences, channels).
  void step(Recorder& recorder, const std::string& prefix, const kernels::ColumnsOf<Tensor>& x,
            Tensor y) const;
  /// Writes dx, and the parameters' gradients. @return the gradient of halo; none without
  Tensor backward(Recorder& recorder, const kernels::ColumnsOf<Tensor>& x, Tensor dy,
                  const kernels::ColumnsOf<Tensor>& dx, Tensor halo) const;

 private:
  Parameter weight_;
  std::optional<Parameter> bias_;
};

}  // namespace stowage::layers
