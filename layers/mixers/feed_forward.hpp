#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/mixers/layer.hpp"
#include "layers/mixers/products.hpp"
#include "layers/recording/config.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {

/// Of fc1: the gate and what it gates are one each.
std::vector<Projection> hidden_projections(kernels::Activation activation, std::int64_t ffn);

/// act(x W1^T) W2^T: the dense MLP, and the shared expert of a MoE layer. If it is gated, the
/// result is scaled by the sigmoid of x . w (Qwen2-MoE), which is applied with the activation.
///
/// Only fc1's output is saved; the activation is computed again in backward, since it costs less
/// than its bytes. A quantised fc2 saves what it takes too, a byte for each element, in place of a
/// pass of three.
class FeedForward {
 public:
  /// @param key the deck's name of ffn  @param part of the layer, in the parameters' names
  /// @param module of the saved fc1 output  @param gated by a weight `<part>.gate.weight` (1, D)
  FeedForward(const MixerPlace& place, std::int64_t ffn, const char* key, const char* part,
              std::string module, bool gated = false);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  Rounding input_rounding() const { return fc1_.rounding(); }
  /// What `rows` gathers in place of x, or of dy, of this rank's rows: see Product.
  Tensor shared_input(Recorder& recorder, const std::string& name, Tensor x,
                      const SharedRows& rows) const {
    return gate_ ? x : fc1_.shared_input(recorder, name, x, rows);  // a gate takes values
  }
  Tensor shared_gradient(Recorder& recorder, const std::string& name, Tensor dy,
                         const SharedRows& rows) const {
    return fc2_.shared_gradient(recorder, name, dy, rows);
  }

  // Its products, on the rows of all ranks that share it, n of them: the caller exchanges them, and
  // puts what else there is to do beside that. `name` starts the names of the ops.

  /// act(x W1^T), scaled.  @param x (n, D)
  /// @return (n, F), or of a quantised fc2 x W1^T, for out() alone
  Tensor hidden(Recorder& recorder, const std::string& name, const AllRows& x) const;
  /// This rank's summand of some rows of the result.  @param active of hidden()  @param y of (n, D)
  void out(Recorder& recorder, const std::string& name, Tensor active, const SomeRows& y,
           const RowBlock& some = {}) const;
  /// The gradient of fc2, and that of fc1's output.  @param dy (n, D), whole  @return (n, F1)
  Tensor hidden_gradient(Recorder& recorder, const std::string& name, const AllRows& dy,
                         WeightsPosition position) const;
  /// This rank's summand of the gradient of x, stored or added; and the gradient of the gate.
  void input_gradient(Recorder& recorder, const std::string& name, Tensor dhidden, Tensor x,
                      Tensor dx, bool accumulate) const;
  /// The gradient of fc1.
  void weight_gradient(Recorder& recorder, const std::string& name, Tensor dhidden, Tensor x,
                       WeightsPosition position) const;

 private:
  struct Hidden {
    Tensor fc1_out;     ///< (n, F1)
    Tensor row_weight;  ///< (n) accum, if it is gated
    Tensor dlogits;     ///< (n, 1) accum, the gradient of what its sigmoid is of
  };

  /// The weights of rows.  @return (n) accum
  Tensor weigh(Recorder& recorder, const std::string& name, const AllRows& x) const;
  /// What fc2 takes: the activation, or what it applies that to itself, since it rounds the result.
  Tensor activate(Recorder& recorder, const std::string& name, const Hidden& hidden) const;
  /// True if fc2 applies the activation, which knows no weights of rows.
  bool fc2_activates() const { return fc2_.quantised() && !gate_; }
  ProductInput fc2_input(Tensor active, execution::Range some = {}) const {
    return {active, some, fc2_activates() ? std::optional(activation_) : std::nullopt};
  }

  std::int64_t ffn_;  ///< of this rank
  kernels::Activation activation_;
  std::string module_;
  Product fc1_;
  Product fc2_;
  std::optional<Product> gate_;
  std::vector<Parameter> parameters_;
};

/// Forward of one activated row of an MLP: squared ReLU has two matrices, SwiGLU three.
/// @param width of the row
inline double mlp_row_flops(const ModelConfig& model, std::int64_t width, std::int64_t ffn) {
  const double matrices = model.mlp.activation == kernels::Activation::swiglu ? 3 : 2;
  return 2 * matrices * static_cast<double>(width) * static_cast<double>(ffn);
}

}  // namespace stowage::layers
