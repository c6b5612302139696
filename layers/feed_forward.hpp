#pragma once

#include <string>
#include <vector>

#include "layers/config.hpp"
#include "layers/layer.hpp"
#include "layers/products.hpp"

namespace stowage::layers {

/// act(x W1^T) W2^T: the dense MLP, and the shared expert of a MoE layer.
///
/// Only fc1's output is saved; the activation is computed again in backward, since it costs less
/// than its bytes.
class FeedForward {
 public:
  /// @param prefix of the parameters' names  @param module of the saved fc1 output
  FeedForward(const ModelConfig& config, std::int64_t ffn, const std::string& prefix,
              std::string module);

  const std::vector<Parameter>& parameters() const { return parameters_; }

  /// @param name starts the names of its ops  @return (n, D)
  Tensor forward(Recorder& recorder, const std::string& name, Tensor x) const;
  /// @param x the input of forward  @param dx stored, or added when `accumulate`
  void backward(Recorder& recorder, const std::string& name, Tensor dy, Tensor x, Tensor dx,
                bool accumulate) const;

 private:
  struct Hidden {
    Tensor fc1_out;  ///< (n, F1)
  };

  std::int64_t width_;
  std::int64_t ffn_;
  kernels::Activation activation_;
  std::string module_;
  Product fc1_;
  Product fc2_;
  std::vector<Parameter> parameters_;
};

}  // namespace stowage::layers
