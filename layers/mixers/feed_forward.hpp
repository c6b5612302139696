#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/mixers/layer.hpp"
#include "layers/mixers/products.hpp"
#include "layers/recording/config.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {

/// act(x W1^T) W2^T: the dense MLP, and the shared expert of a MoE layer.
///
/// Only fc1's output is saved; the activation is computed again in backward, since it costs less
/// than its bytes.
class FeedForward {
 public:
  /// @param tensor ranks that share its columns and rows  @param key the deck's name of ffn
  /// @param prefix of the parameters' names  @param module of the saved fc1 output
  FeedForward(const ModelConfig& config, std::int64_t ffn, const char* key,
              std::shared_ptr<const parallel::RankGroup> tensor, const std::string& prefix,
              std::string module);

  const std::vector<Parameter>& parameters() const { return parameters_; }

  /// @param name starts the names of its ops  @param x (rows, D)  @return (rows, D)
  Tensor forward(Recorder& recorder, const std::string& name, Tensor x) const;
  /// @param x the input of forward  @param onto what the gradient is added to, or none
  /// @return gradient of x
  Tensor backward(Recorder& recorder, const std::string& name, Tensor dy, Tensor x,
                  Tensor onto = {}) const;

 private:
  struct Hidden {
    Tensor fc1_out;  ///< (n, F1)
  };

  std::int64_t width_;
  SharedRows rows_;
  std::int64_t ffn_;  ///< of this rank
  kernels::Activation activation_;
  std::string module_;
  Product fc1_;
  Product fc2_;
  std::vector<Parameter> parameters_;
};

}  // namespace stowage::layers
